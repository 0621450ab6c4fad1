"""An S3 server on loopback over a directory of buckets, and the environment of its clients."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.lib.probe import connects
from benchmarks.restore.restore_contestant import ContestantFailed
from handler.processes import free_port

ACCESS, SECRET = "bench", "bench-secret"


CERTIFICATE, KEY = "certificate.pem", "key.pem"
# A key and a certificate of 127.0.0.1, signed by itself.
OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -nodes -subj /CN=bench"


def environment_of(endpoint: str, directory: Path | None = None) -> dict[str, str]:
    """:param directory: where the server's certificate is, if it speaks TLS."""
    trusted = {} if directory is None else {"AWS_CA_BUNDLE": str(directory.with_name(CERTIFICATE))}
    return {
        **trusted,
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


@contextmanager
def loopback_s3(directory: Path, rate: str = "off", *, tls: bool = False) -> Iterator[str]:
    """Runs `rclone serve s3` on loopback over a directory of buckets.

    :param rate: the bytes a second that it sends at most (rclone's --bwlimit).
    :param tls: it speaks TLS. Key and certificate are written beside the directory.
    """
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--config", os.devnull]
    command += ["--log-level", "ERROR", "--addr", address, "--auth-key", f"{ACCESS},{SECRET}", str(directory)]
    command[-1:-1] = ["--bwlimit", rate]
    if tls:
        certificate, key = directory.with_name(CERTIFICATE), directory.with_name(KEY)
        files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*OPENSSL.split(), *files], check=True, capture_output=True)
        command[-1:-1] = ["--cert", str(certificate), "--key", str(key)]
    process = subprocess.Popen(command)
    try:
        for _ in range(200):
            if process.poll() is not None:
                raise ContestantFailed("rclone serve s3 did not start")
            if connects(port):
                break
            time.sleep(0.05)
        yield f"{'https' if tls else 'http'}://{address}"
    finally:
        process.terminate()
        process.wait(10)
