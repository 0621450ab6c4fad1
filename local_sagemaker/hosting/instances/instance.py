"""One instance: starts the container's process, checks its health, notices its end, and stops it."""

from __future__ import annotations

import http.client
import logging
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from local_sagemaker.gateway.gateway_settings import ContainerAddress
from local_sagemaker.hosting.instances.host_settings import HostTiming
from local_sagemaker.hosting.instances.runner import Runner

log = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0


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


@dataclass(slots=True)
class Illness:
    """An injected fault of an instance: until when its pings count as failed."""

    pings_refused_until: float = 0.0


class Instance:
    """One instance. It calls ``on_change`` from its own thread when its state changes."""

    def __init__(self, launch: Launch, on_change: Callable[[Instance], None]) -> None:
        self.id = f"i-{uuid.uuid4().hex[:17]}"
        self.launch = launch
        self.state = InstanceState.STARTING
        self.reason = ""
        self.outstanding = 0
        self.illness = Illness()
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

    def kill(self) -> None:
        """Kills the process, as a crash of the machine would."""
        if self._process is not None:
            if command := self.launch.runner.kill(self.id):
                run_quietly(command)
            else:
                _signal_group(self._process.pid, signal.SIGKILL)

    def wait_ended(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

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
        begin = self.launch.runner.begin(self.id, self.launch.base, self._scratch, self.address.port)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                begin.command,
                env=begin.environment,
                cwd=self.launch.base,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its child processes can be ended with it, as in a container
            )
        left = [str(self._process.pid), started_at(self._process.pid), shlex.join(self.launch.runner.remove(self.id))]
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
        if time.monotonic() < self.illness.pings_refused_until:
            return False
        connection = http.client.HTTPConnection(
            self.address.host, self.address.port, timeout=self.launch.timing.ping_seconds
        )
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

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
            _signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        (self.launch.pids / self.id).unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.state = InstanceState.ENDED
        self._ended.set()
        self._on_change(self)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def started_at(pid: int) -> str:
    """Returns the start time of a process, which distinguishes it from a later process with the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def read_only_model_command() -> tuple[str, ...]:
    """Returns the prefix of a command that makes the model's directory read-only for it.

    Root can write to read-only files, but a container's root cannot write to /opt/ml/model. The prefix is empty if this
    process is not root, or cannot drop a capability.
    """
    command = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    if os.geteuid() != 0 or shutil.which(command[0]) is None:
        return ()
    tried = subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return command if tried.returncode == 0 else ()


def run_quietly(command: Sequence[str]) -> None:
    """Runs a command. Its failure means that there was nothing to do."""
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("%s failed: %s", shlex.join(command), error)


def end_orphans(pids: Path) -> int:
    """Ends the processes that a killed service left running. Returns their number."""
    count = 0
    for file in pids.iterdir():
        pid, at, remove = [*file.read_text().split("\n"), "", ""][:3]
        if pid.isdigit() and at and started_at(int(pid)) == at:
            _signal_group(int(pid), signal.SIGKILL)
            count += 1
        if remove:
            run_quietly(shlex.split(remove))
        file.unlink(missing_ok=True)
    return count
