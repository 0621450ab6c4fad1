"""The conditions of a benchmark run: how it is interrupted, and whether the machine is idle."""

from __future__ import annotations

import os
import signal

from benchmarks.lib.report import BenchmarkReport

# A load average above this means that other processes are running.
BUSY = 0.5


def interrupt_once() -> None:
    """Makes the first SIGINT or SIGTERM raise KeyboardInterrupt, and ignores further ones.

    The interrupted run still has to stop its servers. That is bounded in time and must not be cut short.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def warn_if_busy(report: BenchmarkReport) -> None:
    """Reports a load average that will widen the spread of the results."""
    if (load := os.getloadavg()[0]) > BUSY:
        report.alarm(f"the machine is busy with other work (load average {load:.1f}): expect wide spreads")


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
