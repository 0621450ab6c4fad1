"""Downloads a model from S3, many objects at once. The target directory appears complete or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from handler.errors import SettingError, StartFailed
from handler.processes import alive
from handler.storage.byte_progress import ByteCounter, ByteProgress
from handler.storage.s3_listing import list_objects

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

STAGE = "fetch model"
THREADS = 16


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One object below a prefix. `path` is relative to the prefix and does not leave it."""

    key: str
    path: PurePosixPath
    size: int


def download_prefix(uri: str, target: Path, setting: str, progress: ByteProgress) -> None:
    """Downloads every object below `uri` to `target`. Returns at once if the directory exists.

    The files are written to a directory beside the target, which is renamed at the end: readers never see a partial
    model. Credentials, region and endpoint are botocore's own (`AWS_ENDPOINT_URL` for a server on loopback).

    :raises SettingError: there are no objects, or a key would leave the target.
    :raises StartFailed: S3 refused the request or the connection broke.
    """
    if target.is_dir():
        return
    bucket, prefix = split_uri(uri, setting)
    import boto3
    from boto3.exceptions import Boto3Error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    options = Config(
        max_pool_connections=THREADS,
        retries={"mode": "adaptive", "max_attempts": 8},
        connect_timeout=5,
        read_timeout=30,
    )
    try:
        client: S3Client = boto3.client("s3", config=options)
        files = list_files(client, bucket, prefix, setting)
        if not files:
            raise SettingError(setting, f"{uri} has no objects", "Check the bucket, the prefix and the region.")
        _check_room(target, sum(file.size for file in files))
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(target)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-{os.getpid()}-", dir=target.parent))
        try:
            _fetch(client, bucket, files, partial, progress)
            try:
                partial.rename(target)
            except OSError:
                if not target.is_dir():  # another process has not finished it meanwhile
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except (BotoCoreError, ClientError, Boto3Error) as error:
        raise StartFailed(STAGE, f"{uri}: {error}. Check the role's s3:ListBucket and s3:GetObject.") from error


def _remove_left(target: Path) -> None:
    """Deletes the partial directories of killed processes beside `target`. Each may be as large as the model."""
    for left in target.parent.glob(f".{glob.escape(target.name)}-*-*"):
        pid = left.name.split("-")[-2]
        if not pid.isdigit() or int(pid) == os.getpid() or not alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def split_uri(uri: str, setting: str) -> tuple[str, str]:
    """Splits `s3://bucket/a/b` into `bucket` and `a/b/`. An empty prefix stays empty."""
    bucket, _, path = uri.removeprefix("s3://").partition("/")  # no URL parser: a key may contain "?" and "#"
    prefix = path.strip("/")
    if not bucket:
        raise SettingError(setting, f"'{uri}' names no bucket", "Write s3://bucket/prefix.")
    return bucket, f"{prefix}/" if prefix else ""


def list_files(client: S3Client, bucket: str, prefix: str, setting: str) -> list[RemoteFile]:
    """Returns the files below a prefix. Skips the "folder" objects that the S3 console creates.

    :raises SettingError: a key would leave the target directory, or lies below another key.
    """
    files = []
    for item in list_objects(client, bucket, prefix):
        relative = item.key.removeprefix(prefix)
        if not relative or relative.endswith("/"):
            continue
        path = PurePosixPath(relative)
        if path.is_absolute() or ".." in path.parts or "\0" in relative:
            raise SettingError(setting, f"the key '{item.key}' leads out of the model's directory", "Remove it.")
        files.append(RemoteFile(item.key, path, item.size))
    paths = {file.path for file in files}
    for file in files:
        if not paths.isdisjoint(file.path.parents):
            raise SettingError(setting, f"the key '{file.key}' lies below another that is a file", "Remove one.")
    return files


def _check_room(target: Path, needed: int) -> None:
    existing = next(parent for parent in target.parents if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise SettingError(
            "ENDPOINT_SCRATCH",
            f"the model needs {needed / 1e9:.1f} GB and {existing} has {free / 1e9:.1f} GB free",
            "Give a directory on a larger volume, or a larger volume to the endpoint.",
        )


def _fetch(client: S3Client, bucket: str, files: list[RemoteFile], directory: Path, progress: ByteProgress) -> None:
    counter = ByteCounter(sum(file.size for file in files), progress)

    def fetch(file: RemoteFile) -> None:
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, file.key, str(path), Callback=counter.add)
        if path.stat().st_size != file.size:
            raise StartFailed(STAGE, f"s3://{bucket}/{file.key} ended after {path.stat().st_size} of {file.size} bytes")

    with ThreadPoolExecutor(THREADS, thread_name_prefix="fetch") as pool:
        list(pool.map(fetch, files))  # the first error cancels the downloads that have not begun
