"""Runs an image as SageMaker runs it: `serve`, /opt/ml/model read-only, a writable /tmp, the port from the environment.

Stricter than SageMaker: the rest of the file system is read-only, there is no shell, and memory and file descriptors
are limited.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handler.processes import free_port
from image.image_client import ImageClient

SHELLS = ("/usr/bin/dash", "/usr/bin/bash")
DESCRIPTORS = 4096
MEMORY_GB = 8
START_SECONDS = 900
ENGINE = {"SM_VLLM_ENFORCE_EAGER": "true", "SM_VLLM_MAX_MODEL_LEN": "512", "SM_VLLM_MAX_NUM_SEQS": "4"}


@dataclass(frozen=True)
class Image:
    """An image that is tested.

    :ivar options: what a stand-in base needs mounted.
    """

    client: ImageClient
    tag: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def run_options(self) -> list[str]:
        return [*(word for word in self.client.run_options if "nofile" not in word), *self.options]


class SageMakerContainer:
    """:ivar user: another than the image's own, without capabilities, as Kubernetes and compose run it."""

    def __init__(self, image: Image, model: Path, output: Path, user: str = "", **environment: str) -> None:
        self.user = user
        self.client = image.client
        self.port = free_port()
        self.name = f"image-test-{uuid.uuid4().hex[:8]}"
        given = {**image.environment, "SAGEMAKER_BIND_TO_PORT": str(self.port), **environment}
        words = [
            *(*self.client.command, "run", "--rm", "--name", self.name, "--network=host", "--read-only"),
            *(["--read-only-tmpfs=false"] if self.client.name == "podman" else []),
            *("--tmpfs=/tmp:rw,mode=1777,size=2g", f"--mount=type=bind,source={model},target=/opt/ml/model,readonly"),
            *((f"--user={user}", "--cap-drop=ALL") if user else ()),
            *(f"--volume=/dev/null:{shell}:ro" for shell in SHELLS),
            *(f"--memory={MEMORY_GB}g", f"--ulimit=nofile={DESCRIPTORS}:{DESCRIPTORS}", *image.run_options),
            *(f"--env={name}={value}" for name, value in given.items()),
            *(image.tag, "serve"),
        ]
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)

    def get(self, path: str) -> tuple[int, str]:
        return self._send(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def invoke(self, body: dict[str, Any]) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self.port}/invocations"
        headers = {"Content-Type": "application/json"}
        status, text = self._send(urllib.request.Request(address, json.dumps(body).encode(), headers))
        assert status == 200, text
        reply: dict[str, Any] = json.loads(text)
        return reply

    def _send(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def until_ping(self, wanted: int) -> None:
        """Waits for a status of /ping. A container that ends instead fails the test with its output."""
        end = time.monotonic() + START_SECONDS
        while self._ping() != wanted:
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < end, self.output.read_text()
            time.sleep(0.1)

    def _ping(self) -> int | None:
        try:
            return self.get("/ping")[0]
        except OSError:
            return None

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, as its user."""
        words = [*self.client.command, "exec", self.name, *command]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)

    def signal(self, name: str) -> int:
        """Sends a signal to process 1 and returns the container's exit status."""
        self.client.output("kill", "--signal", name, self.name)
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal("KILL")
