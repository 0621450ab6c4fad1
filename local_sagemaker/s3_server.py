"""moto's S3 server as a process. It keeps its objects in memory: they are saved when it ends, and put back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

STARTED_WITHIN = 60.0
INDEX = "index.json"


class S3Server:
    """:param saved: a directory for the objects between two runs."""

    def __init__(self, port: int, region: str, saved: Path, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._saved = saved
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # A Ctrl-C at a terminal must not end it before its objects are saved.
            )
        self._client: S3Client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def wait_started(self) -> None:
        """:raises RuntimeError: it ended, or did not answer in time."""
        deadline = time.monotonic() + STARTED_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=2):
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the S3 server did not start; see s3.log in the state directory")

    def load(self) -> None:
        """Puts back what the last run had."""
        index = self._saved / INDEX
        if not index.exists():
            return
        for bucket, objects in json.loads(index.read_text(encoding="utf-8")).items():
            self._client.create_bucket(Bucket=bucket)
            for kept in objects:
                with (self._saved / kept["file"]).open("rb") as body:
                    self._client.upload_fileobj(
                        body, bucket, kept["key"], ExtraArgs={"ContentType": kept["type"], "Metadata": kept["metadata"]}
                    )

    def save(self) -> None:
        """All objects as files, under names of our own; the index is written last."""
        self._saved.mkdir(exist_ok=True)
        index: dict[str, list[dict[str, object]]] = {}
        fresh = time.strftime("%Y%m%d%H%M%S")
        number = 0
        for bucket in self._client.list_buckets()["Buckets"]:
            objects = index[bucket["Name"]] = []
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket["Name"]):
                for listed in page.get("Contents", []):
                    number += 1
                    name = f"{fresh}-{number}"
                    found = self._client.get_object(Bucket=bucket["Name"], Key=listed["Key"])
                    with (self._saved / name).open("wb") as file:
                        for chunk in found["Body"].iter_chunks(1024 * 1024):
                            file.write(chunk)
                    objects.append(
                        {
                            "file": name,
                            "key": listed["Key"],
                            "type": found["ContentType"],
                            "metadata": found["Metadata"],
                        }
                    )
        unfinished = self._saved / "index.unfinished"
        unfinished.write_text(json.dumps(index), encoding="utf-8")
        unfinished.replace(self._saved / INDEX)
        for old in self._saved.iterdir():
            if old.name != INDEX and not old.name.startswith(f"{fresh}-"):
                old.unlink()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
