"""What has arrived from a client and is not handled yet. Between its pieces the loop runs others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# Bytes of a piece, and seconds after which the loop runs others first. A read of 256 KiB may hold 43,000 frames of a
# WebSocket or 10,000 requests, and uvloop may read 32 times in a turn.
PIECE: Final = 4096
LONGEST_TURN: Final = 0.01


class ReadBuffer:
    """The receiving side of one connection. All methods run on the loop.

    While something is left, nothing more is read.

    :param take: handles a piece.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], object]
    ) -> None:
        self._transport, self._loop, self._take = transport, loop, take
        self._left, self._position = b"", 0
        self._paused = False
        self._next_turn: asyncio.Handle | None = None

    def arrived(self, data: bytes) -> None:
        if len(data) <= PIECE and not self._left:
            self._take(data)
            return
        self._left, self._position = self._left[self._position :] + data, 0
        self._go_on()

    def _go_on(self) -> None:
        """Handles what is left, as far as it may now."""
        self._next_turn, until = None, time.monotonic() + LONGEST_TURN
        while self._left and not self._paused and time.monotonic() < until:
            piece = self._left[self._position : self._position + PIECE]
            self._position += PIECE
            if self._position >= len(self._left):
                self._left, self._position = b"", 0
            self._take(piece)
        if self._left:
            self._transport.pause_reading()
            if not self._paused and self._next_turn is None:
                self._next_turn = self._loop.call_soon(self._go_on)
        elif not self._paused:
            self._transport.resume_reading()

    def pause(self) -> None:
        """Handles nothing more, until `resume`."""
        self._paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        self._paused = False
        if not self._left:
            self._transport.resume_reading()
        elif self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._go_on)

    def lost(self) -> None:
        """The client has left. Nothing refers to the connection any more."""
        self._left, self._take = b"", _dropped


def _dropped(data: bytes) -> None:
    """Nobody handles it: the client has left."""
