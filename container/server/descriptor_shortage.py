"""What the worker does when it runs out of file descriptors: it pauses `accept` and logs the limit and the fix.

A listener stays readable while a client waits in its backlog. Without a pause the main loop would call `accept` again
and again, and fail each time.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import selectors
import time
from collections.abc import Callable
from contextlib import suppress

from container.server.connection_channel import ConnectionChannel

logger = logging.getLogger(__name__)
# Errors of accept(2) that end when something else is closed or freed, each with its fix.
FIXES = {
    errno.EMFILE: "Raise it: `ulimit -n 65536`, or `docker run --ulimit nofile=65536:65536`.",
    errno.ENFILE: "The limit of the whole machine is reached: raise `sysctl fs.file-max`.",
    errno.ENOBUFS: "The kernel has no memory for sockets: use a larger instance.",
    errno.ENOMEM: "The kernel has no memory for sockets: use a larger instance.",
}
PAUSE = 0.1
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


class AcceptPause:
    """Pauses what brings new connections. Used by the main thread only.

    :param poller: the main loop's poller.
    :param accept: called by the main loop when a connection can be accepted.
    """

    def __init__(self, poller: selectors.BaseSelector, accept: Callable[[ConnectionChannel], None]) -> None:
        self._poller, self._accept = poller, accept
        self._paused: set[ConnectionChannel] = set()
        self._paused_until = 0.0
        self._error: int | None = None
        self._log = ShortageLog(logger)

    def begin(self, listener: ConnectionChannel, error: int) -> None:
        """Pauses a listener for `PAUSE` seconds.

        :param error: the errno of `accept`.
        """
        with suppress(KeyError):  # unregistered after the loop had found it readable
            self._poller.unregister(listener)
            self._paused.add(listener)
        self._paused_until = time.monotonic() + PAUSE
        self._error = error

    def end(self) -> None:
        """Resumes the listeners if their time is up."""
        if self._paused and time.monotonic() >= self._paused_until:
            self.resume()

    def resume(self) -> None:
        """Registers the paused listeners again, as gunicorn expects them to be."""
        while self._paused:
            self._poller.register(self._paused.pop(), selectors.EVENT_READ, self._accept)

    def timeout(self, seconds: float) -> float:
        """How long the main loop may wait for events.

        :param seconds: how long it would wait without a pause.
        """
        return min(seconds, PAUSE) if self._paused else seconds

    def take_error(self) -> int | None:
        """The errno of a pause that began since the last call."""
        error, self._error = self._error, None
        return error

    def log(self, error: int, connections: int) -> None:
        self._log.write(error, connections)


def limit() -> int:
    """The limit of file descriptors of this process (`ulimit -n`)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def lowest_reserved() -> float:
    """The lowest descriptor of the reserve."""
    maximum = limit()
    return math.inf if maximum == resource.RLIM_INFINITY else maximum - min(RESERVE, maximum // 8)


def reserve_is_reached(descriptor: int) -> bool:
    """Whether only the reserve is left.

    :param descriptor: a new descriptor. The kernel assigns the lowest free number, so all below it are in use.
    """
    return descriptor >= lowest_reserved()
