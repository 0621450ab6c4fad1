"""Compiles on this machine by starting the container until it is ready.

The plugin compiles while it loads a model, and the key of the artifacts is computed by the same code that an endpoint
runs. So this starts `serve` with the endpoint's settings and the store, follows its /ping, and stops it when it is
ready. By then the artifacts are published, or were found in the store.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from handler.artifacts.lease.acquisition import OnMiss
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.artifacts.store.object_names import KINDS
from handler.config.dialects import container_variables
from handler.errors import EndpointError, SettingError
from handler.json_value import json_object
from handler.processes import free_port
from handler.startup.lifecycle import COMPILED
from model_packaging.console.options import SETTINGS
from model_packaging.deployment.container_log import as_text
from model_packaging.deployment.deployment_errors import CompileEnded
from model_packaging.deployment.diagnosis import diagnose
from model_packaging.deployment.watch import Tell

POLL = 0.5
STOPPED_WITHIN = 40.0
NO_ENTRY = "a hub id has no entry (give a folder or s3://bucket/prefix), nor has a start with compiled_artifacts"


@dataclass(frozen=True, slots=True)
class CompiledArtifacts:
    """The result of a compile.

    :param entries: what was published. Empty if the store had it.
    """

    entries: tuple[Manifest, ...]
    seconds: float


def child_environment(settings: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Returns this process's environment without its endpoint settings, plus the given variables.

    Another endpoint's settings on this machine must not have an effect. Tokens are no settings of one.
    """
    others = {name for name, field in container_variables.FIELDS.items() if field != "hf_token"}
    dropped = others | container_variables.ARGUMENTS.keys()
    kept = {name: value for name, value in own.items() if not name.startswith(SETTINGS) and name not in dropped}
    return {**kept, **settings}


def compile_here(
    environ: Mapping[str, str], store: str, tell: Tell, command: tuple[str, ...] = ()
) -> CompiledArtifacts:
    """Runs the container until its artifacts are published.

    :param environ: the container's environment. Its own store, and what it does on a miss, are for an endpoint.
    :param command: the container's command. The default is `serve` beside this interpreter or on the path.
    :raises CompileEnded: the container ended before it was ready, or did not publish what it had compiled.
    """
    command = command or _serve()
    opened = ArtifactStore.open(store, setting="--store")
    began = time.monotonic()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="neuron-endpoint-") as scratch:
        variables = {
            "ENDPOINT_SCRATCH": scratch,
            **environ,
            "ENDPOINT_ARTIFACT_STORE": store,
            "ENDPOINT_ON_MISS": OnMiss.COMPILE,
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "ENDPOINT_LOG_FORMAT": "json",  # a text has no events
        }
        log = Path(scratch) / "serve.log"
        with _started(command, variables, log) as process:
            _follow(process, port, log, tell)
        published = _published(log)
    entries = (entry for kind in KINDS for key in published if (entry := opened.find(key, kind)))
    return CompiledArtifacts(tuple(entries), time.monotonic() - began)


@contextmanager
def failure_file(environ: Mapping[str, str], path: Path = Path("/opt/ml/output/failure")) -> Iterator[None]:
    """Writes an error's message to the file that becomes a training job's FailureReason (at most 1,024 characters)."""
    try:
        yield
    except EndpointError as error:
        if "TRAINING_JOB_NAME" in environ and path.parent.is_dir():
            path.write_text(error.message[:1024])
        raise


def _follow(process: subprocess.Popen[bytes], port: int, log: Path, tell: Tell) -> None:
    last = ""
    while True:
        status, body = _ping(port)
        if status == 200 or body.get("stage") == COMPILED:
            return
        if process.poll() is not None or status == 500:
            raise _ended(process, body, log)
        text = _told(body)
        if text and text != last:
            tell(text)
            last = text
        time.sleep(POLL)


def _published(log: Path) -> list[str]:
    """The keys of what the container has published. None if the store had everything.

    :raises CompileEnded: the store did not take it, or was not used. Such a container is ready all the same.
    """
    lines = (line for line in log.read_text(errors="replace").splitlines() if '{"event"' in line)
    events = [event for line in lines if (event := json_object(line[line.index('{"event"') :]))]
    by_name = {str(event["event"]): event for event in events}
    if problem := by_name.get("artifact_not_published"):
        raise CompileEnded(str(problem["problem"]), None, ())
    if not {"artifact_published", "artifact_restored"} & set(by_name):
        raise CompileEnded(NO_ENTRY, None, ())
    return [str(event["key"]) for event in events if event["event"] == "artifact_published"]


def _told(body: Mapping[str, Any]) -> str:
    progress = body.get("progress")
    of = f" {100 * progress['done_bytes'] // progress['total_bytes']}%" if progress else ""
    return f"{body['stage']}{of}" if "stage" in body else ""


def _ended(process: subprocess.Popen[bytes], body: Mapping[str, Any], log: Path) -> CompileEnded:
    with log.open(encoding="utf-8", errors="replace") as file:
        lines = [as_text(line.rstrip()) for line in deque(file, maxlen=2000)]
    reason = str(body.get("reason") or f"the container ended with status {process.poll()}")
    return CompileEnded(reason, diagnose(reason, lines), lines)


@contextmanager
def _started(command: tuple[str, ...], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the container in its own session, so that Ctrl-C reaches only this process, which then stops it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=dict(environ), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        with _interrupted_by_signals():
            yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Has the end of the terminal or of the job, which would leave the container on the devices, act as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _serve() -> tuple[str, ...]:
    beside = Path(sys.executable).with_name("serve")
    command = shutil.which(beside) or shutil.which("serve")
    if command is None:
        raise SettingError("compile", "the container's `serve` is not installed here", "Use --on, or the image.")
    return (command,)
