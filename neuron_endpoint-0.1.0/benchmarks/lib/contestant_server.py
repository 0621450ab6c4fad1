"""Starts a contestant, measures its start, and always ends it."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from psutil import NoSuchProcess, Process

from benchmarks.lib import probe
from benchmarks.lib import process_usage as processes
from benchmarks.lib.contestant import Contestant
from benchmarks.lib.process_usage import Usage

POLL_S = 0.05
START_LIMIT_S = 300.0
STOP_LIMIT_S = 35.0


class ServerFailed(Exception):
    """The server ended, or was not ready in time."""

    def __init__(self, contestant: Contestant, reason: str, log: Path) -> None:
        self.contestant = contestant
        self.log = log
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        super().__init__(f"{contestant.name} ({contestant.kind}): {reason}; the end of {log}:\n{tail}")


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds since the process was started, to a resolution of `POLL_S`."""

    port_s: float  # to the first accepted connection
    ping_s: float  # to the first answer of /ping, whatever its status
    ready_s: float  # to the first 200 of /ping


class ContestantServer:
    """A context manager: the server is ready inside the block, and ended after it."""

    def __init__(self, contestant: Contestant, log: Path) -> None:
        self.contestant = contestant
        self.log = log
        self.began = 0.0
        self.start = StartTimes(0.0, 0.0, 0.0)
        self._process: subprocess.Popen[bytes] | None = None
        self._http: list[Process] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self.began = time.monotonic()
            # A session of its own: Ctrl-C reaches this program alone, which then ends the servers in order.
            self._process = subprocess.Popen(
                self.contestant.command,
                env={**os.environ, **self.contestant.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.start = self._wait_until_ready(self._process)
            self._http = processes.http_processes(self.pid, self.contestant.port)
            if not self._http:
                raise ServerFailed(self.contestant, "no process of it holds the port", self.log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def http(self) -> list[Process]:
        """The processes that speak HTTP."""
        return self._http

    def usage(self) -> Usage:
        """Returns the resources that its HTTP processes have used so far."""
        try:
            return processes.usage(self.pid, self._http)
        except NoSuchProcess:
            raise ServerFailed(self.contestant, "its HTTP process has ended", self.log) from None

    def stop(self) -> None:
        """Ends the server and all its child processes. They are listed first, because an orphan cannot be found."""
        if self._process is None:
            return
        processes.end(processes.family(self.pid), STOP_LIMIT_S)
        self._process.wait(timeout=10)
        self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> StartTimes:
        port_s = ping_s = 0.0
        while (elapsed := time.monotonic() - self.began) < START_LIMIT_S:
            if process.poll() is not None:
                raise ServerFailed(self.contestant, f"ended with code {process.returncode}", self.log)
            if not port_s and probe.connects(self.contestant.port):
                port_s = time.monotonic() - self.began
            if port_s and (status := probe.ask(self.contestant.port, self.contestant.health)):
                elapsed = time.monotonic() - self.began
                ping_s = ping_s or elapsed
                if status == 200:
                    return StartTimes(port_s, ping_s, elapsed)
            time.sleep(POLL_S)
        raise ServerFailed(self.contestant, f"not ready after {elapsed:.0f} s", self.log)
