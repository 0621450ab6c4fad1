"""Runs `serve` as SageMaker does: a process with an environment, watched through its port and its signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

SERVE = Path(sys.executable).with_name("serve")
ENGINE_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),  # "auto" before 0.13
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "SM_VLLM_MAX_NUM_SEQS": "16",
    "SM_VLLM_MAX_MODEL_LEN": "1024",
    "SM_VLLM_ENFORCE_EAGER": "true",
}
STARTED_WITHIN = 600.0
# A wait that fails takes at least this long, so that a slow machine fails no test. No wait measures anything.
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServeProcess:
    """One `serve` and what was seen of it.

    :ivar port_seconds: from the process's start to the first accepted connection.
    :ivar pings: (seconds since start, status, body) of each answer while it was starting.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], *, pipe: bool = False) -> None:
        """:param pipe: its output goes to a pipe instead of a file."""
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log_path = directory / "serve.log"
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=120, trust_env=False)
        self.port_seconds = 0.0
        self.pings: list[tuple[float, int, str]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SM_VLLM_", "ENDPOINT_"))}
        with self.log_path.open("wb") as log:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                [SERVE],
                env={**kept, **ENGINE_ENVIRONMENT, "SAGEMAKER_BIND_TO_PORT": str(self.port), **environment},
                stdout=subprocess.PIPE if pipe else log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_port(self) -> None:
        def connect() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self.until(connect, 30)
        self.port_seconds = time.monotonic() - self.began

    def ping(self) -> tuple[int, str]:
        """One health check as SageMaker makes it: 2 s; 0 where there was no answer."""
        try:
            reply = self.client.get("/ping", timeout=2.0)
        except httpx.HTTPError as error:
            return 0, type(error).__name__
        return reply.status_code, reply.text

    def wait_ready(self, within: float = STARTED_WITHIN) -> None:
        def ready() -> bool:
            status, body = self.ping()
            self.pings.append((time.monotonic() - self.began, status, body))
            return status == 200

        self.until(ready, within)

    def until(self, condition: Callable[[], bool], within: float, interval: float = 0.05) -> float:
        """Waits until a condition holds; returns the seconds it took. Fails after `within` seconds, or PATIENCE."""
        began, within = time.monotonic(), max(within, PATIENCE)
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"serve ended with status {self.process.returncode}:\n{self.log}")
            if time.monotonic() - began > within:
                raise AssertionError(f"not within {within} s, and /ping says {self.ping()}:\n{self.log[-4000:]}")
            time.sleep(interval)
        return time.monotonic() - began

    def metric(self, name: str) -> float:
        """A gauge from /metrics, whatever its labels."""
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"/metrics has no {name}")

    def engine_pids(self) -> list[int]:
        """The engine's core processes: the descendants that vLLM has named."""
        rows = subprocess.run(["ps", "-eo", "pid,ppid,comm,args"], capture_output=True, text=True, check=True).stdout
        parents = {}
        named = []
        for row in rows.splitlines()[1:]:
            pid, parent, rest = row.split(None, 2)
            parents[int(pid)] = int(parent)
            if "EngineCore" in rest:
                named.append(int(pid))
        return [pid for pid in named if self._descends(pid, parents)]

    def _descends(self, pid: int, parents: Mapping[int, int]) -> bool:
        while pid in parents:
            if pid == self.process.pid:
                return True
            pid = parents[pid]
        return False

    def stage(self) -> str:
        """What /ping says that the start is at; empty once it serves or where nothing answers."""
        status, body = self.ping()
        return str(json.loads(body)["stage"]) if status in {500, 503} else ""

    def kill_all(self) -> None:
        """Ends every process of it, and the client."""
        self.kill_all_processes()
        self.client.close()

    def kill_all_processes(self) -> None:
        """SIGKILL for every process of it at once, the engine's core among them, as when a container is killed."""
        while [pid for pid in session_members(self.process.pid) if _kill(pid)]:
            self.process.poll()
            time.sleep(0.01)
        self.process.wait(10)

    @contextmanager
    def serving(self, within: float = STARTED_WITHIN) -> Iterator[ServeProcess]:
        """Ready within the seconds given; at the end, SIGTERM ends it with status 0."""
        try:
            self.wait_port()
            self.wait_ready(within)
            yield self
        finally:
            status = self.terminate()
        assert status == 0, self.log

    def terminate(self) -> int:
        """SIGTERM, and SIGKILL 90 s later; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(10)
        finally:
            self.client.close()


def session_members(session: int) -> list[int]:
    """The living processes of a session: what `serve` has started, whatever group it put itself in."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                members.append(int(entry.name))
    return members


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
