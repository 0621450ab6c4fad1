"""neuron-monitor as a child process: started where it is installed, restarted when it ends, ended with us."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.neuron.hardware.device_health import DeviceHealth
from handler.neuron.hardware.monitor_report import MonitorReport, parse

logger = logging.getLogger(__name__)

NAME: Final = "neuron-monitor"
# Where the package aws-neuronx-tools puts it; not always on the PATH.
INSTALLED: Final = Path("/opt/aws/neuron/bin", NAME)
# Seconds: between two starts, twice as long each time; a report at most this old is the present.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
FRESH: Final = 30.0
LONGEST_LINE: Final = 4 * 1024 * 1024


def find() -> str | None:
    """The binary, if there is one."""
    return shutil.which(NAME) or (str(INSTALLED) if os.access(INSTALLED, os.X_OK) else None)


def watched_devices(wanted: bool) -> NeuronMonitor | None:
    """A monitor that has been started; None where it is not wanted or not installed."""
    binary = find() if wanted else None
    if binary is None:
        return None
    monitor = NeuronMonitor(binary)
    monitor.start()
    return monitor


@dataclass(frozen=True, slots=True)
class MonitorState:
    """A report, and when it came (`time.monotonic`)."""

    report: MonitorReport
    at: float


class NeuronMonitor:
    """Reads one report after another, each 5 s by the monitor's default.

    The child is in this process's group, which the master ends after this process: it cannot outlive us.

    :param first_pause: seconds before the first restart.
    :ivar starts: how often it was started.
    """

    def __init__(self, binary: str, first_pause: float = FIRST_PAUSE) -> None:
        self._binary, self._first_pause = binary, first_pause
        self._seen: MonitorState | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.health = DeviceHealth()
        self.starts = 0
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the child. Returns when it is gone."""
        with self._lock:
            self._stopped.set()
            process = self._process
        if process is not None:
            process.kill()
        self._thread.join(5)

    def latest(self) -> MonitorReport | None:
        """The last report, unless it is too old to be true."""
        seen = self._seen
        return seen.report if seen is not None and time.monotonic() - seen.at < FRESH else None

    def trouble(self) -> str | None:
        """Why the devices cannot be trusted; None as long as they can, or nothing is known."""
        return self.health.trouble()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stopped.is_set():
            reports = self._follow()
            pause = self._first_pause if reports else min(pause * 2, LONGEST_PAUSE)
            if self._stopped.is_set():
                return
            logger.warning("%s ended after %d reports; it is started again in %.0f s", NAME, reports, pause)
            self._stopped.wait(pause)

    def _follow(self) -> int:
        """One life of the child; the number of reports it gave."""
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
            while line := process.stdout.readline(LONGEST_LINE):
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
                logger.warning("%s printed a line that is no report", NAME)
            return 0
        before = self.health.trouble()
        self.health.add(report)
        self._seen = MonitorState(report, time.monotonic())
        trouble = self.health.trouble()
        if trouble and not before:
            logger.error("%s: /ping says 500 from now on, so that the instance is replaced", trouble)
        return 1
