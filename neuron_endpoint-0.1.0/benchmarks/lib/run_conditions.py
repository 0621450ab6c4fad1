"""The conditions of a benchmark run: how it ends early, and whether the machine is idle."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.lib.report import BenchmarkReport

# A load average above this means that other processes are running.
BUSY = 0.5


@contextmanager
def measuring(report: BenchmarkReport, *failures: type[Exception]) -> Iterator[None]:
    """Around what a command measures. Warns of a load average that will widen the spread of the results.

    A failure is reported and ends the program with 1. The first SIGINT or SIGTERM ends it with 130, further ones are
    ignored: the interrupted run still has to stop its servers, which is bounded in time and must not be cut short.

    :param failures: errors with which a run fails, in addition to OSError.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if (load := os.getloadavg()[0]) > BUSY:
        report.alarm(f"the machine is busy with other work (load average {load:.1f}): expect wide spreads")
    expected: tuple[type[Exception], ...] = (OSError, *failures)
    try:
        yield
    except expected as error:
        report.alarm(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        report.alarm("interrupted; the servers have been ended")
        sys.exit(130)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
