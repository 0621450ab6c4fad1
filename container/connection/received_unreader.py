"""gunicorn's source of a request's bytes, for a connection from which the event loop has read some already."""

from __future__ import annotations

import socket

from gunicorn.http.unreader import SocketUnreader


class ReceivedUnreader(SocketUnreader):  # type: ignore[misc]  # gunicorn is untyped
    """Gives the parser what has been received, then reads from the socket.

    It gives small pieces, as a socket does: gunicorn's parser of chunks copies the rest of a piece with each chunk.
    """

    def __init__(self, connection: socket.socket, received: bytearray) -> None:
        super().__init__(connection)
        self._received, self._given = memoryview(received), 0

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self._given == len(self._received):
            received: bytes = super().chunk(size_hint)
            return received
        size = min(max(size_hint or 0, self.mxchunk), self.max_body_chunk)
        piece = self._received[self._given : self._given + size]
        self._given += len(piece)
        return bytes(piece)

    def take_buffered(self) -> bytes:
        buffered: bytes = super().take_buffered()
        rest, self._given = self._received[self._given :], len(self._received)
        return buffered + bytes(rest)
