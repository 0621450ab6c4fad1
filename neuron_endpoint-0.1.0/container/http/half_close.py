"""Tells a client that has ended its side of the connection, and waits for its reply, from one that has left.

Both look alike: the end of the request's bytes. Only something that is sent tells: the system of a client that has left
answers with a reset, and the next write fails. HTTP allows an interim response at any time before the reply (RFC 9110,
15.2), so one is sent now and then.
"""

from __future__ import annotations

import asyncio
from typing import Final

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Seconds until the second interim response, and the longest time between two.
FIRST, LONGEST = 0.05, 5.0


class HalfClose:
    """Sends interim responses until it is stopped. Every method is called on the loop."""

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._seconds = transport, loop, FIRST
        self._probe()

    def _probe(self) -> None:
        self._transport.write(CONTINUE)
        self._timer = self._loop.call_later(self._seconds, self._probe)
        self._seconds = min(2 * self._seconds, LONGEST)

    def stop(self) -> None:
        self._timer.cancel()
