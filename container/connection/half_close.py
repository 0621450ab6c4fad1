"""Tells a client that has ended its side of the connection, and waits for its reply, from one that has left.

Both look alike: the end of the request's bytes. Only something that is sent tells: the system of a client that has left
answers with a reset. HTTP allows an interim response at any time before the reply (RFC 9110, 15.2), so one is sent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from container.connection.socket_io import send_now

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Seconds until the first look at what the client's system has answered, and the longest time between two looks.
FIRST, LONGEST = 0.05, 5.0


class HalfClose:
    """Watches a client from which no more bytes come. Every method is called on the loop.

    :param may_probe: whether nothing of the reply has been sent.
    :param left: called once if the client has left.
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        may_probe: Callable[[], bool],
        left: Callable[[], object],
    ) -> None:
        self._socket, self._loop, self._may_probe, self._left = connection, loop, may_probe, left
        self._seconds = FIRST
        self._timer: asyncio.TimerHandle | None = None
        self._probe()

    def _probe(self) -> None:
        if self._may_probe():
            send_now(self._socket, CONTINUE)
        self._timer = self._loop.call_later(self._seconds, self._look)
        self._seconds = min(2 * self._seconds, LONGEST)

    def _look(self) -> None:
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            self._socket.send(b"", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass
        except OSError:
            self._left()
            return
        self._probe()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
