"""What was written to a client and is not accepted yet. A client that is too far behind is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# Bytes and seconds that a client may be behind with a stream, and seconds with any reply.
MAX_BACKLOG, MAX_SILENCE = 4 * 1024 * 1024, 60.0
# How often a slow client is looked at, as a share of `MAX_SILENCE`.
PRECISION = 0.1
# Seconds until the second probe, and the longest time between two.
FIRST_PROBE, LONGEST_PROBE = 0.05, 5.0


class ReplyBuffer:
    """The sending side of one connection. All methods run on the loop.

    :param cut: cuts the client off, for a reason.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, cut: Callable[[str], None]
    ) -> None:
        self._transport, self._loop, self._cut = transport, loop, cut
        self._written, self._accepted, self._accepted_at = 0, 0, 0.0
        self._look: asyncio.TimerHandle | None = None
        self._next_probe: asyncio.TimerHandle | None = None
        self._waiting: list[Callable[[], object]] = []
        transport.set_write_buffer_limits(0)  # each write is a system call at once; a rest pauses the writing

    def write(self, data: bytes, *, bounded: bool) -> None:
        """:param bounded: a client that is `MAX_BACKLOG` bytes behind already gets no more."""
        self._stop_probing()
        if bounded and self._look is not None:
            backlog = self._transport.get_write_buffer_size()
            if backlog > MAX_BACKLOG:
                self._cut(f"the client is {backlog:,} bytes behind")
                return
        self._written += len(data)
        self._transport.write(data)

    def paused(self) -> None:
        """The client has not accepted all."""
        self._accepted, self._accepted_at = -1, self._loop.time()
        self._look_at_client()

    def resumed(self) -> None:
        """The client has accepted all, or has left."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def lost(self) -> None:
        """The client has left. Nothing refers to the connection any more."""
        self._cut = _left
        self._stop_probing()
        self.resumed()

    def when_accepted(self, then: Callable[[], object]) -> None:
        """Calls a function once the client has accepted all, or has left: now, if so."""
        self._stop_probing()
        if self._look is None or self._transport.is_closing():
            then()
        else:
            self._waiting.append(then)

    async def accepted(self) -> None:
        """Waits until the client has accepted what was written, or has left."""
        accepted = asyncio.Event()
        self.when_accepted(accepted.set)
        await accepted.wait()

    def probe(self, seconds: float = FIRST_PROBE) -> None:
        """Sends interim responses until the reply: the client has ended its side, and waits for the reply or has left.

        Both look alike: the end of the request's bytes. Only something that is sent tells: the system of a client that
        has left answers with a reset, and the next write fails. HTTP allows an interim response at any time before the
        reply (RFC 9110, 15.2).

        :param seconds: until the next one.
        """
        self._transport.write(CONTINUE)
        self._next_probe = self._loop.call_later(seconds, self.probe, min(2 * seconds, LONGEST_PROBE))

    def _stop_probing(self) -> None:
        if self._next_probe is not None:
            self._next_probe.cancel()

    def _look_at_client(self) -> None:
        """Cuts a client off that has accepted nothing for too long."""
        accepted, now = self._written - self._transport.get_write_buffer_size(), self._loop.time()
        if accepted != self._accepted:
            self._accepted, self._accepted_at = accepted, now
        if now - self._accepted_at >= MAX_SILENCE:
            self._cut(f"the client accepted no data for {MAX_SILENCE:g} s")
            return
        self._look = self._loop.call_later(MAX_SILENCE * PRECISION, self._look_at_client)


def _left(reason: str) -> None:
    """The client cannot be cut off: it has left."""
