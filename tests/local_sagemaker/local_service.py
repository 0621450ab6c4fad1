"""``neuron-endpoint local up`` as a user types it, and what it printed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import psutil
from botocore.config import Config

from local_sagemaker.state_directory import StateDirectory

COMMAND = Path(sys.executable).with_name("neuron-endpoint")
STUB = f"{sys.executable} {Path(__file__).with_name('stub_container.py')}"
ROLE = "arn:aws:iam::123456789012:role/sagemaker"
OF_MOTO = ("s3", "cloudwatch", "application-autoscaling")
QUICK = ("--image", f"stub={STUB}", "--speed", "60", "--ping-every", "0.2", "--kill-after", "2")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "local", *arguments], capture_output=True, text=True, timeout=120, check=False)


class LocalService:
    """:ivar exports: the environment that it printed for pasting."""

    def __init__(self, state: Path, *options: str) -> None:
        self.state = state
        self._options = options
        self.exports: dict[str, str] = {}
        self.up(*options)

    def up(self, *options: str) -> None:
        """It ends with the tests, should they be killed."""
        started = self.command("up", "--with-process", str(os.getpid()), *options)
        assert started.returncode == 0, started.stderr
        lines = [word.partition("=") for word in shlex.split(started.stdout) if word != "export"]
        self.exports = {name: value for name, _, value in lines}

    def down(self) -> None:
        ended = self.command("down")
        assert ended.returncode == 0, ended.stderr

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A subcommand."""
        return run(*arguments, "--state", str(self.state))

    def instances(self) -> dict[str, list[dict[str, Any]]]:
        """As `local status` shows them; a process for each look would take half a second."""
        running = StateDirectory(self.state).running()
        assert running is not None
        return running.instances()

    @property
    def url(self) -> str:
        return self.exports["AWS_ENDPOINT_URL_SAGEMAKER"]

    def client(self, service: str, **more: Any) -> Any:
        url = self.exports["AWS_ENDPOINT_URL_S3"] if service in OF_MOTO else self.url
        # Its types have an overload for each service's name.
        make: Callable[..., Any] = boto3.client
        keys = {
            "aws_access_key_id": self.exports["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": self.exports["AWS_SECRET_ACCESS_KEY"],
            "region_name": self.exports["AWS_DEFAULT_REGION"],
            "config": Config(retries={"max_attempts": 0}, max_pool_connections=80, parameter_validation=False),
        }
        return make(service, endpoint_url=url, **{**keys, **more})


class Cloud:
    """The clients of one service, and the few steps that every test takes."""

    def __init__(self, service: LocalService) -> None:
        self.service = service
        self.sagemaker = service.client("sagemaker")
        self.runtime = service.client("sagemaker-runtime")
        self.s3 = service.client("s3")
        self.s3.create_bucket(Bucket="models")

    def model(self, name: str, container: dict[str, Any] | None = None, **environment: str) -> str:
        container = {"Image": "stub", "Environment": environment, **(container or {})}
        self.sagemaker.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        return name

    def config(self, name: str, *variants: dict[str, Any], **more: Any) -> str:
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[{**VARIANT, **each} for each in variants], **more
        )
        return name

    def endpoint(self, name: str, config: str) -> str:
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config)
        return str(self.settled(name)["EndpointStatus"])

    def settled(self, name: str) -> dict[str, Any]:
        """When nothing changes any more."""
        described: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        while described["EndpointStatus"] not in ("InService", "Failed", "OutOfService", "UpdateRollbackFailed"):
            time.sleep(0.05)
            described = self.sagemaker.describe_endpoint(EndpointName=name)
        return described

    def stream(self, name: str, count: int, **more: Any) -> Iterator[bytes]:
        """The parts of a streamed answer of so many events. The call is made at once."""
        body = json.dumps({"do": "stream", "count": count, **more}).encode()
        reply = self.runtime.invoke_endpoint_with_response_stream(EndpointName=name, Body=body)
        return (event["PayloadPart"]["Bytes"] for event in reply["Body"])

    def delete(self, name: str) -> None:
        self.sagemaker.delete_endpoint(EndpointName=name)
        until(lambda: not self.exists(name))

    def exists(self, name: str) -> bool:
        return any(
            each["EndpointName"] == name for each in self.sagemaker.list_endpoints(NameContains=name)["Endpoints"]
        )

    def instances(self, name: str) -> list[dict[str, Any]]:
        return self.service.instances().get(name, [])


VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.inf2.xlarge", "InitialInstanceCount": 1}


def until(holds: Callable[[], bool], within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """It runs no more; nobody may have reaped it, if its parent was killed."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def archive(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
        for member in more:
            tar.addfile(member)
    return packed.getvalue()
