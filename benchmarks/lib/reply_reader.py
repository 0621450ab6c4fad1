"""Parses HTTP/1.1 replies and server-sent events from bytes that are cut anywhere. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto


class BrokenReply(Exception):
    """The peer disconnected during a reply, or did not send HTTP/1.1."""


class _Stage(Enum):
    HEAD = auto()
    COUNTED = auto()  # a body of `Content-Length` bytes
    CHUNK_SIZE = auto()
    CHUNK = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    COMPLETE = auto()


class ReplyParser:
    """Parses one reply incrementally."""

    __slots__ = ("_missing", "_pending", "_stage", "keep_alive", "status")

    def __init__(self) -> None:
        self._stage = _Stage.HEAD
        self._pending = bytearray()
        self._missing = 0
        self.status = 0
        self.keep_alive = True

    @property
    def complete(self) -> bool:
        return self._stage is _Stage.COMPLETE

    def feed(self, data: bytes) -> bytes:
        """Takes the bytes of a socket read. Returns the part of the body in them, without framing."""
        self._pending += data
        body = bytearray()
        while self._step(body):
            pass
        return bytes(body)

    def end_of_stream(self) -> None:
        """Called when the peer has closed. This ends a body without a length, and is an error otherwise."""
        if self._stage is not _Stage.UNTIL_CLOSE:
            raise BrokenReply(f"the connection was closed while reading {self._stage.name}")
        self._stage = _Stage.COMPLETE

    def _step(self, body: bytearray) -> bool:
        """Parses one element. Returns False if more bytes are needed."""
        match self._stage:
            case _Stage.CHUNK | _Stage.COUNTED | _Stage.UNTIL_CLOSE:
                return self._take_body(body)
            case _Stage.COMPLETE:
                if self._pending:
                    raise BrokenReply("bytes after the end of the reply")
                return False
            case _Stage.HEAD:
                end = self._pending.find(b"\r\n\r\n")
                if end < 0:
                    return False
                self._read_head(bytes(self._pending[:end]))
                del self._pending[: end + 4]
                return True
        end = self._pending.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._pending[:end])
        del self._pending[: end + 2]
        if self._stage is _Stage.TRAILER:
            if not line:
                self._stage = _Stage.COMPLETE
            return True
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise BrokenReply(f"not a chunk size: {line[:40]!r}") from None
        self._missing = size + 2  # the line end after the data belongs to the chunk
        self._stage = _Stage.CHUNK if size else _Stage.TRAILER
        return True

    def _take_body(self, body: bytearray) -> bool:
        taken = len(self._pending)
        if self._stage is not _Stage.UNTIL_CLOSE:
            taken = min(taken, self._missing)
            framing = 2 if self._stage is _Stage.CHUNK else 0
            body += self._pending[: max(0, min(taken, self._missing - framing))]
            self._missing -= taken
            if not self._missing:
                self._stage = _Stage.CHUNK_SIZE if framing else _Stage.COMPLETE
        else:
            body += self._pending
        del self._pending[:taken]
        return taken > 0 and (bool(self._pending) or self.complete)

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise BrokenReply(f"not a status line: {first[:80]!r}")
        self.status = int(rest[:3])
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(b":") for x in lines)}
        self.keep_alive = headers.get(b"connection") != b"close" and version == b"HTTP/1.1"
        if 100 <= self.status < 200:
            return  # interim; the reply proper follows
        if headers.get(b"transfer-encoding") == b"chunked":
            self._stage = _Stage.CHUNK_SIZE
        elif b"content-length" in headers or self.status in (204, 304):
            self._missing = int(headers.get(b"content-length", b"0"))
            self._stage = _Stage.COUNTED if self._missing else _Stage.COMPLETE
        else:
            self._stage = _Stage.UNTIL_CLOSE
            self.keep_alive = False


def server_sent_events(arrivals: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yields each event as (time of the read that completed it, its data). Comments are dropped.

    It works on bytes, so a character that was cut is complete before it is decoded. Carriage returns are removed first
    (JSON never contains a raw one), which covers both line ends that servers use.
    """
    pending = b""
    for when, data in arrivals:
        *events, pending = (pending + data.replace(b"\r", b"")).split(b"\n\n")
        for event in events:
            values = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
            if values:
                yield when, b"\n".join(values)
