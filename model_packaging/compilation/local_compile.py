"""Compiles on this machine, by starting the container until it is ready.

The plugin compiles while it loads a model, so to compile is to start; and what an endpoint will look for is decided by
the very code that runs here. So this starts `serve` with the endpoint's settings and the store, follows its /ping, and
stops it when it would serve: by then the artifacts are published, or were found.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.errors import EndpointError, SettingError
from model_packaging.compilation.compilation_errors import CompileEnded
from model_packaging.deployment.diagnosis import diagnose

# What another endpoint's settings on this machine must not decide.
SETTINGS = ("ENDPOINT_", "SM_VLLM_", "SM_ON_", "OPTION_", "SERVING_", "HF_MODEL_ID", "NEURON_COMPILED_ARTIFACTS")
POLL = 0.5
STOPPED_WITHIN = 40.0
TAIL = 20
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompiledArtifacts:
    """:param entries: of the store, that this run made; none when all were there."""

    entries: tuple[Manifest, ...]
    seconds: float


def child_environment(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without its settings, and then the given ones."""
    return {**{name: value for name, value in own.items() if not name.startswith(SETTINGS)}, **given}


def compile_here(
    environ: Mapping[str, str], store: str, tell: Tell, command: tuple[str, ...] = ()
) -> CompiledArtifacts:
    """:param environ: of the process, complete but for the store, the port and the scratch directory.
    :param command: the container's, by default `serve` beside this interpreter or on the path.
    :raises CompileEnded: the container ended before it was ready.
    """
    command = command or _serve()
    before = _entries(store)
    began = time.monotonic()
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="neuron-endpoint-") as scratch:
        variables = {
            "ENDPOINT_ARTIFACT_STORE": store,
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "ENDPOINT_SCRATCH": scratch,
            **environ,
        }
        log = Path(scratch) / "serve.log"
        with _started(command, variables, log) as process:
            _follow(process, port, log, tell)
    after = _entries(store)
    new = tuple(entry for name, entry in after.items() if name not in before)
    return CompiledArtifacts(new, time.monotonic() - began)


@contextmanager
def failure_file(environ: Mapping[str, str], path: Path = Path("/opt/ml/output/failure")) -> Iterator[None]:
    """In a training job, an error's message becomes the job's FailureReason (at most 1,024 characters)."""
    try:
        yield
    except EndpointError as error:
        if "TRAINING_JOB_NAME" in environ and path.parent.is_dir():
            path.write_text(error.message[:1024])
        raise


def _entries(store: str) -> dict[tuple[str, str], Manifest]:
    return {(entry.kind, entry.key): entry for entry in ArtifactStore.open(store, setting="--store").entries()}


def _follow(process: subprocess.Popen[bytes], port: int, log: Path, tell: Tell) -> None:
    last = ""
    while True:
        status, body = _ping(port)
        if status == 200:
            return
        if process.poll() is not None or status == 500:
            raise _ended(process, body, log)
        text = _told(body)
        if text and text != last:
            tell(text)
            last = text
        time.sleep(POLL)


def _told(body: Mapping[str, Any]) -> str:
    progress = body.get("progress")
    of = f" {100 * progress['done_bytes'] // progress['total_bytes']}%" if progress else ""
    return f"{body['stage']}{of}" if "stage" in body else ""


def _ended(process: subprocess.Popen[bytes], body: Mapping[str, Any], log: Path) -> CompileEnded:
    lines: deque[str] = deque(maxlen=2000)
    with log.open(encoding="utf-8", errors="replace") as file:
        lines.extend(line.rstrip() for line in file)
    reason = str(body.get("reason") or f"the container ended with status {process.poll()}")
    return CompileEnded(reason, diagnose(reason, lines), tuple(lines)[-TAIL:])


@contextmanager
def _started(command: tuple[str, ...], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, so that Ctrl-C reaches this process alone, which then stops that one in good order."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=dict(environ), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ping(port: int) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/ping")
        reply = connection.getresponse()
        body = reply.read()
        return reply.status, json.loads(body) if body else {}
    except (OSError, HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _serve() -> tuple[str, ...]:
    beside = Path(sys.executable).with_name("serve")
    found = str(beside) if beside.exists() else shutil.which("serve")
    if found is None:
        raise SettingError("compile", "the container's `serve` is not installed here", "Use --on, or the image.")
    return (found,)
