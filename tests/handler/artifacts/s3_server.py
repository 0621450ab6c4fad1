"""A real S3 server on loopback: `rclone serve s3` over a directory whose subdirectories are the buckets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.handler.waiting import eventually

ACCESS, SECRET = "local", "local-secret"
REGION = "us-east-1"


@contextmanager
def s3_server(directory: Path) -> Iterator[int]:
    """Its port, while the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--config", "/dev/null"]
    command += ["--log-level", "ERROR", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS},{SECRET}"]
    # What the tests write behind its back must be seen at once.
    command += ["--dir-cache-time", "0s", str(directory)]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: _listens(port, process), within=20)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def environment(endpoint: str) -> dict[str, str]:
    """What botocore needs to reach it, and nothing of the machine's own settings."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "rclone ended"
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
