"""``python -m local_sagemaker`` as a process, and a plain boto3 client of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import boto3
from botocore.config import Config


class GatewayProcess:
    def __init__(self, container_url: str, *options: str) -> None:
        command = [sys.executable, "-m", "local_sagemaker", "--container", container_url]
        command += ["--endpoint", "sample", "--port", "0", "--with-process", str(os.getpid()), *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.greeting = ""
        for line in self._process.stdout:
            self.greeting += line
            if "end=" in line:  # The snippet's last line.
                break
        found = re.search(r"listens on (http://127\.0\.0\.1:\d+)", self.greeting)
        assert found, f"the gateway did not start: {self.greeting!r}"
        self.url = found.group(1)
        self.runtime = runtime_client(self.url)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.runtime.close()
        self._process.send_signal(how)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(10)


def runtime_client(url: str) -> Any:
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"max_attempts": 0}, max_pool_connections=80, read_timeout=20),
    )
