"""One visitor of a soak: how it sends, reads and leaves. Raw sockets on asyncio, so that it may behave badly."""

from __future__ import annotations

import asyncio
import json
import socket
from random import Random

import websockets
from websockets.asyncio.client import connect

from benchmarks.lib.reply_reader import BrokenReply, ReplyParser
from benchmarks.soak.soak_requests import SoakRequest, question

HOST = "127.0.0.1"
PATIENCE_S = 120.0
WEBSOCKET = "/invocations-bidirectional-stream"


class WrongReply(Exception):
    """Not what was requested; its text says what came."""


def message(request: SoakRequest) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in request.headers)
    head = f"POST {request.path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {request.content_type}\r\n{more}"
    return f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body


class Visitor:
    """:param pick: its dice; what they give is the same for the same seed, when it happens is not."""

    def __init__(self, port: int, pick: Random) -> None:
        self._port = port
        self._pick = pick

    async def stay(self, request: SoakRequest) -> None:
        """:raises WrongReply: the reply is incomplete, or not what was requested."""
        async with asyncio.timeout(PATIENCE_S):
            check(request, *await self._send(request))

    async def leave(self, request: SoakRequest) -> None:
        """At any moment: within the request, before the reply, within it; closing, or by a reset."""
        reader, writer = await asyncio.open_connection(HOST, self._port)
        whole = message(request)
        try:
            if self._pick.random() < 0.2:
                writer.write(whole[: self._pick.randrange(len(whole))])
                await writer.drain()
                return
            writer.write(whole)
            await writer.drain()
            patience = self._pick.choice((0.0, 0.002, 0.02, 0.2))
            try:
                await asyncio.wait_for(reader.read(self._pick.randint(1, 4000)), patience)
            except TimeoutError:
                pass
        except OSError:
            return
        finally:
            if self._pick.random() < 0.5:
                writer.transport.abort()
            writer.close()

    async def dawdle(self, request: SoakRequest) -> None:
        """Takes a reply in small sips, or stops taking it and goes.

        :raises WrongReply: as in `stay`.
        """
        patient = self._pick.random() < 0.7
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(link, (HOST, self._port))
            await loop.sock_sendall(link, message(request))
            if not patient:
                await asyncio.sleep(self._pick.uniform(0.5, 3))  # what it does is nothing
                return
            parser, body = ReplyParser(), b""
            async with asyncio.timeout(PATIENCE_S):
                while not parser.complete:
                    data = await loop.sock_recv(link, 8192)
                    if not data:
                        parser.end_of_stream()
                        break
                    body += parser.feed(data)
                    await asyncio.sleep(0.004)
            check(request, parser.status, body)
        except BrokenReply as error:
            raise WrongReply(f"{request.kind}: {error}") from None
        finally:
            link.close()

    async def session(self) -> None:
        """Opens a session, says something in it, and closes it, unless it forgets to."""
        new = SoakRequest("sessions", "/invocations", b'{"requestType": "NEW_SESSION"}', mark=b"session_id")
        status, body = await self._send(new)
        check(new, status, body)
        header = (("X-Amzn-SageMaker-Session-Id", json.loads(body)["session_id"]),)
        talk = json.dumps({"prompt": question(self._pick), "max_tokens": 4}).encode()
        await self.stay(SoakRequest("sessions", "/invocations", talk, mark=b'"usage"', headers=header))
        if self._pick.random() < 0.8:
            await self.stay(
                SoakRequest("sessions", "/invocations", b'{"requestType": "CLOSE"}', mark=b"closed", headers=header)
            )

    async def converse(self) -> None:
        """A bidirectional stream of up to three answers, left at its end or in the middle.

        :raises WrongReply: an answer is an error, or does not end.
        """
        url = f"ws://{HOST}:{self._port}{WEBSOCKET}"
        try:
            async with connect(url, proxy=None, compression=None) as line, asyncio.timeout(PATIENCE_S):
                for _ in range(self._pick.randint(1, 3)):
                    await line.send(json.dumps({"prompt": question(self._pick), "max_tokens": 16, "stream": True}))
                    while (frame := await line.recv()) != "[DONE]":
                        if "error" in json.loads(frame):
                            raise WrongReply(f"WebSocket: {frame[:200]!r}")
                        if self._pick.random() < 0.02:
                            line.transport.abort()
                            return
        except websockets.ConnectionClosed as error:
            raise WrongReply(f"WebSocket: {error}") from None

    async def _send(self, request: SoakRequest) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        parser, body = ReplyParser(), bytearray()
        try:
            writer.write(message(request))
            while not parser.complete:
                data = await reader.read(65536)
                if not data:
                    parser.end_of_stream()
                    break
                body += parser.feed(data)
        except (BrokenReply, OSError) as error:
            raise WrongReply(f"{request.kind}: {type(error).__name__}: {error}") from None
        finally:
            writer.close()
        return parser.status, bytes(body)


def check(request: SoakRequest, status: int, body: bytes) -> None:
    """:raises WrongReply: another status, an error in place of the end, a traceback."""
    if status not in request.statuses or (status == 200 and request.mark not in body):
        raise WrongReply(f"{request.kind}: {status} {body[-300:]!r} to {request.body[:200]!r}")
    if b"Traceback" in body:
        raise WrongReply(f"{request.kind}: a traceback: {body[:300]!r}")
