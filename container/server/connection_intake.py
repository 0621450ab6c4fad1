"""Takes the connections that the acceptor passes on. It pauses while there are no file descriptors for them.

The channel stays readable while a connection waits in it. Without a pause the loop would try again and again, and fail
each time.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from container.http.connections import Connections
from container.server.connection_channel import ConnectionChannel
from container.server.descriptor_shortage import FIXES, ShortageLog, lowest_reserved

logger = logging.getLogger(__name__)
PAUSE = 0.1
# When file descriptors run out: connections that are closed at a time, and how long each must have been idle.
CLOSE_BATCH, IDLE_SECONDS = 32, 1.0
# Connections that are taken in one turn of the loop.
BATCH = 16


class ConnectionIntake:
    """All methods run on the loop.

    :param ended: called with the reason when no more connections can come.
    """

    def __init__(self, channel: ConnectionChannel, connections: Connections, ended: Callable[[str], None]) -> None:
        self._channel, self._connections, self._ended = channel, connections, ended
        self._loop = connections.loop
        self._log = ShortageLog(logger)

    def begin(self) -> None:
        self._loop.add_reader(self._channel.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(BATCH):
            try:
                client = self._channel.accept()
            except BlockingIOError:
                return
            except EOFError as error:
                self._loop.remove_reader(self._channel.fileno())
                self._ended(str(error))
                return
            except OSError as error:
                if error.errno not in FIXES:
                    raise
                self._pause(error.errno or errno.EMFILE)
                return
            scarce = client.fileno() >= lowest_reserved()
            self._connections.take(client)
            if scarce:
                self._pause(errno.EMFILE)
                return

    def _pause(self, error: int) -> None:
        self._log.write(error, len(self._connections))
        self._connections.close_idle(CLOSE_BATCH, IDLE_SECONDS)
        self._loop.remove_reader(self._channel.fileno())
        self._loop.call_later(PAUSE, self.begin)
