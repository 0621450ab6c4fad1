"""One instance: starts the container's process, checks its health, notices its end, and stops it."""

from __future__ import annotations

import http.client
import logging
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from handler.processes import free_port
from local_sagemaker.hosting.instances.container_processes import run_quietly, signal_group, started_at
from local_sagemaker.hosting.instances.host_settings import ContainerAddress, HostTiming
from local_sagemaker.hosting.instances.runner import Runner
from local_sagemaker.hosting.instances.timed_connection import connect

log = logging.getLogger(__name__)

OF_JSON: Mapping[str, str] = {"Content-Type": "application/json"}


class InstanceState(Enum):
    STARTING = "Starting"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    STOPPING = "Stopping"
    ENDED = "Ended"


@dataclass(frozen=True, slots=True)
class Launch:
    """What every instance of one model starts with.

    :ivar base: the directory for /opt/ml, filled and read-only. The instances share it.
    :ivar startup_seconds: the time limit until the first successful ping.
    """

    runner: Runner
    base: Path
    logs: Path
    startup_seconds: float
    timing: HostTiming
    pids: Path


class Instance:
    """One instance. It calls ``on_change`` from its own thread when its state changes."""

    def __init__(self, launch: Launch, on_change: Callable[[Instance], None]) -> None:
        self.id = f"i-{uuid.uuid4().hex[:17]}"
        self.launch = launch
        self.state = InstanceState.STARTING
        self.reason = ""
        self.outstanding = 0
        self.was_healthy = False
        self.log = launch.logs / f"{self.id}.log"
        self._on_change = on_change
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self.address = ContainerAddress("127.0.0.1", free_port())
        self._thread = threading.Thread(target=self._live, daemon=True, name=self.id)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL ``kill_after`` seconds later. Returns at once."""
        self._stop.set()

    def wait_ended(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def send(
        self,
        method: str,
        path: str,
        seconds: float,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] = OF_JSON,
    ) -> tuple[int, bytes]:
        """Sends a request to the container. Returns the status and the body of its reply.

        :param body: pieces are sent with chunked encoding.
        :param headers: the headers of the body.
        :raises OSError: the container does not answer.
        :raises http.client.HTTPException: its reply is not HTTP.
        """
        with closing(connect(self.address, seconds, seconds)) as connection:
            connection.request(method, path, body, {} if body is None else headers)
            reply = connection.getresponse()
            return reply.status, reply.read()

    def _live(self) -> None:
        try:
            self._start()
            self._watch()
        except OSError as error:
            self.reason = f"its process can't be started ({error})"
        except Exception:
            log.exception("monitoring %s failed", self.id)
            self.reason = "monitoring it failed; the service's log has the reason"
        finally:
            self._end()

    def _start(self) -> None:
        self.launch.logs.mkdir(parents=True, exist_ok=True)
        # Each instance has its own. Its path is short, because sockets are created in it.
        self._scratch = Path(tempfile.mkdtemp(prefix="sm-"))
        runner, base = self.launch.runner, self.launch.base
        command, environment = runner.begin(self.id, base, self._scratch, self.address.port)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=base,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its child processes can be ended with it, as in a container
            )
        left = [str(self._process.pid), started_at(self._process.pid), shlex.join(runner.remove(self.id))]
        (self.launch.pids / self.id).write_text("\n".join(left))

    def _watch(self) -> None:
        assert self._process is not None
        timing = self.launch.timing
        deadline = time.monotonic() + self.launch.startup_seconds
        failed = 0
        while not self._stop.is_set():
            if self._process.poll() is not None:
                self.reason = self.reason or f"its process ended with status {self._process.returncode}"
                return
            if self._ping():
                failed = 0
                self._become(InstanceState.HEALTHY)
            elif self.state is InstanceState.STARTING:
                if time.monotonic() > deadline:
                    self.reason = f"no ping was answered within {self.launch.startup_seconds:g} s"
                    return
            else:
                failed += 1
                if failed >= timing.failed_pings:
                    self.reason = f"{failed} pings in a row failed"
                    self._become(InstanceState.UNHEALTHY)
                    return
            self._pause(timing.starting_ping_every if self.state is InstanceState.STARTING else timing.ping_every)

    def _pause(self, seconds: float) -> None:
        """Waits for the next ping, the end of the process or the request to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, 0.05)):
            if self._process is None or self._process.poll() is not None:
                return

    def _ping(self) -> bool:
        seconds = self.launch.timing.ping_seconds
        try:
            with closing(connect(self.address, seconds, seconds)) as connection:
                connection.request("GET", "/ping")
                return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _become(self, state: InstanceState) -> None:
        if self.state is not state:
            self.state = state
            self.was_healthy = self.was_healthy or state is InstanceState.HEALTHY
            self._on_change(self)

    def _end(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._become(InstanceState.STOPPING)
                self._process.send_signal(signal.SIGTERM)
                try:
                    self._process.wait(self.launch.timing.kill_after)
                except subprocess.TimeoutExpired:
                    log.warning("%s (%s) is killed: SIGTERM has not ended it", self.id, self._process.pid)
                    if command := self.launch.runner.kill(self.id):
                        run_quietly(command)
            signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        (self.launch.pids / self.id).unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.state = InstanceState.ENDED
        self._ended.set()
        self._on_change(self)
