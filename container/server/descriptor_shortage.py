"""What a process does that runs out of file descriptors: it logs the limit and the fix, and keeps a reserve."""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import time

# Errors of accept(2) that end when something else is closed or freed, each with its fix.
FIXES = {
    errno.EMFILE: "Raise it: `ulimit -n 65536`, or `docker run --ulimit nofile=65536:65536`.",
    errno.ENFILE: "The limit of the whole machine is reached: raise `sysctl fs.file-max`.",
    errno.ENOBUFS: "The kernel has no memory for sockets: use a larger instance.",
    errno.ENOMEM: "The kernel has no memory for sockets: use a larger instance.",
}
LOG_INTERVAL = 60.0
# Descriptors that new connections leave free for files and sockets of requests. No more than an eighth of the limit.
RESERVE = 32


class ShortageLog:
    """Logs a shortage of file descriptors, at most once in `LOG_INTERVAL` seconds."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged = float("-inf")

    def write(self, error: int | None, connections: int) -> None:
        """:param error: the errno of `accept`. None: the reserve is reached."""
        now = time.monotonic()
        if now - self._logged >= LOG_INTERVAL:
            self._logged = now
            error = error or errno.EMFILE
            self._log.warning(
                "Connections wait to be accepted (%s): ulimit -n is %d, and %d connections are open. "
                "The connections that have been idle longest are closed. %s",
                os.strerror(error),
                limit(),
                connections,
                FIXES[error],
            )


def limit() -> int:
    """The limit of file descriptors of this process (`ulimit -n`)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def lowest_reserved() -> float:
    """The lowest descriptor of the reserve.

    The kernel assigns the lowest free number. So a new descriptor that is no lower says that only the reserve is left.
    """
    maximum = limit()
    return math.inf if maximum == resource.RLIM_INFINITY else maximum - min(RESERVE, maximum // 8)
