"""A minimal HTTP/1.1 client for the load generator.

On two cores the generator competes with the servers for CPU time, so general clients (httpx, aiohttp) would affect the
result. This one keeps one connection per concurrent slot, reads the clock once per socket read, and stores the bytes.
Server-sent events are parsed after the measurement.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast

from benchmarks.lib.reply_reader import BrokenReply, ReplyParser


@dataclass(slots=True)
class ClientReply:
    """One request and its reply. Times are CLOCK_MONOTONIC seconds, comparable between processes of one machine."""

    sent: float
    status: int = 0
    end: float = 0.0
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)  # body bytes of each socket read

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.arrivals)


class Connection(asyncio.Protocol):
    """One connection, kept open as long as the server keeps it. It carries one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._parser = ReplyParser()
        self._reply = ClientReply(0.0)
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(lambda: cls(host, port), host, port)
        return connection

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None

    async def post(self, path: str, body: bytes) -> ClientReply:
        """Sends a request and waits for the end of the reply. Raises `BrokenReply` if it is cut off."""
        if self._transport is None:
            raise BrokenReply("the connection is closed")
        self._parser = ReplyParser()
        self._done = asyncio.get_running_loop().create_future()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._reply = ClientReply(time.monotonic())
        self._transport.write(head.encode() + body)
        try:
            await self._done
        except BaseException:
            self.close()
            raise
        if not self._parser.keep_alive:
            self.close()
        self._reply.status = self._parser.status
        return self._reply

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        try:
            body = self._parser.feed(data)
        except BrokenReply as error:
            self._finish(error)
            return
        if body:
            self._reply.arrivals.append((now, body))
        if self._parser.complete:
            self._reply.end = now
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is None or self._done.done():
            return
        self._reply.end = time.monotonic()
        try:
            self._parser.end_of_stream()
        except BrokenReply as error:
            self._finish(error)
        else:
            self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
