"""Runs neuron-monitor as a child process: starts it if it is installed, and restarts it when it ends."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from handler.neuron.hardware.monitor_report import DeviceHealth, MonitorReport, parse

logger = logging.getLogger(__name__)

NAME: Final = "neuron-monitor"
# The path in the package aws-neuronx-tools, which is not always on the PATH.
INSTALLED: Final = Path("/opt/aws/neuron/bin", NAME)
# Seconds. The pause between two starts doubles each time. An older report than MAX_AGE is not used.
FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 60.0
MAX_AGE: Final = 30.0
MAX_LINE: Final = 4 * 1024 * 1024


def find() -> str | None:
    """The path of the binary; None if it is not installed."""
    return shutil.which(NAME) or (str(INSTALLED) if os.access(INSTALLED, os.X_OK) else None)


def start_monitor(enabled: bool) -> NeuronMonitor | None:
    """Starts a monitor. None: it is not wanted, or not installed."""
    binary = find() if enabled else None
    if binary is None:
        return None
    monitor = NeuronMonitor(binary)
    monitor.start()
    return monitor


class NeuronMonitor:
    """Reads the monitor's reports, by default one each 5 s.

    The child belongs to this process's group, which the master ends after this process. So it cannot outlive it.

    :param first_pause: seconds before the first restart.
    :ivar starts: number of starts.
    """

    def __init__(self, binary: str, first_pause: float = FIRST_PAUSE) -> None:
        self._binary, self._first_pause = binary, first_pause
        self._latest: tuple[MonitorReport, float] | None = None  # with the monotonic seconds of its arrival
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.health = DeviceHealth()
        self.starts = 0
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the child, and waits for its end."""
        with self._lock:
            self._stopped.set()
            process = self._process
        if process is not None:
            process.kill()
        self._thread.join(5)

    def latest(self) -> MonitorReport | None:
        """The last report; None if it is too old."""
        report, arrival = self._latest or (None, 0.0)
        return report if time.monotonic() - arrival < MAX_AGE else None

    def problem(self) -> str | None:
        """Why the devices are not healthy; None while they are, or while there is no report."""
        return self.health.failure()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopped.is_set():
            reports = self._follow()
            pause = self._first_pause if reports else min(pause * 2, MAX_PAUSE)
            if self._stopped.is_set():
                return
            logger.warning("%s ended after %d reports; it is restarted in %.0f s", NAME, reports, pause)
            self._stopped.wait(pause)

    def _follow(self) -> int:
        """Runs the child once. Returns the number of its reports."""
        with self._lock:
            if self._stopped.is_set():
                return 0
            try:
                self._process = subprocess.Popen(
                    [self._binary], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            except OSError as error:
                logger.warning("%s cannot be started: %s", self._binary, error.strerror)
                return 0
            self.starts += 1
        process = self._process
        assert process.stdout is not None
        reports = 0
        try:
            while line := process.stdout.readline(MAX_LINE):
                reports += self._take(line)
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
        return reports

    def _take(self, line: bytes) -> int:
        try:
            report = parse(line)
        except ValueError:
            if line.strip():
                logger.warning("%s printed a line that is not a report", NAME)
            return 0
        before = self.health.failure()
        self.health.add(report)
        self._latest = report, time.monotonic()
        problem = self.health.failure()
        if problem and not before:
            logger.error("%s: /ping answers 500 from now on, so that the instance is replaced", problem)
        return 1
