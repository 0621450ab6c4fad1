"""One client of a soak test: how it sends a request, reads the reply, and disconnects."""

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
TIMEOUT_S = 120.0
SLOW_BUFFER, SLOW_PAUSE_S = 4096, 0.004
WEBSOCKET = "/invocations-bidirectional-stream"


class WrongReply(Exception):
    """The reply is not what was requested. The message has the reply."""


class Visitor:
    """A client.

    :param dice: decides what it does. The same seed gives the same decisions, but not the same timing.
    """

    def __init__(self, port: int, dice: Random) -> None:
        self._port = port
        self._dice = dice

    async def stay(self, request: SoakRequest) -> bytes:
        """Sends a request and returns the body of the whole reply.

        :raises WrongReply: the reply is incomplete, or not what was requested.
        """
        reader, writer = await asyncio.open_connection(HOST, self._port)
        return await _exchange(request, reader, writer)

    async def leave(self, request: SoakRequest) -> None:
        """Disconnects within the request, before the reply or within it. Half of these visits end with a reset."""
        reader, writer = await asyncio.open_connection(HOST, self._port)
        whole = message(request)
        try:
            if self._dice.random() < 0.2:
                writer.write(whole[: self._dice.randrange(len(whole))])
                await writer.drain()
            else:
                writer.write(whole)
                await writer.drain()
                async with asyncio.timeout(self._dice.choice((0.0, 0.002, 0.02, 0.2))):
                    await reader.read(self._dice.randint(1, 4000))
        except OSError:  # also the time-out
            pass
        finally:
            if self._dice.random() < 0.5:
                writer.transport.abort()
            writer.close()

    async def read_slowly(self, request: SoakRequest) -> None:
        """Reads a reply in small pieces. In 3 of 10 visits it reads almost nothing, and disconnects after seconds.

        :raises WrongReply: the reply is incomplete, or not what was requested.
        """
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
        link.setblocking(False)
        await asyncio.get_running_loop().sock_connect(link, (HOST, self._port))
        reader, writer = await asyncio.open_connection(sock=link, limit=SLOW_BUFFER)
        if self._dice.random() < 0.7:
            await _exchange(request, reader, writer, SLOW_PAUSE_S)
        else:
            writer.write(message(request))
            await asyncio.sleep(self._dice.uniform(0.5, 3))
            writer.close()

    async def session(self) -> None:
        """Opens a stateful session, sends a request in it, and closes it in 8 of 10 visits.

        :raises WrongReply: a reply is incomplete, or not what was requested.
        """
        new = SoakRequest("sessions", "/invocations", b'{"requestType": "NEW_SESSION"}', mark=b"session_id")
        header = (("X-Amzn-SageMaker-Session-Id", json.loads(await self.stay(new))["session_id"]),)
        prompt = json.dumps({"prompt": question(self._dice), "max_tokens": 4}).encode()
        await self.stay(SoakRequest("sessions", "/invocations", prompt, mark=b'"usage"', headers=header))
        if self._dice.random() < 0.8:
            close = b'{"requestType": "CLOSE"}'
            await self.stay(SoakRequest("sessions", "/invocations", close, mark=b"closed", headers=header))

    async def converse(self) -> None:
        """Requests up to three replies on one WebSocket. Some visits disconnect within a reply.

        :raises WrongReply: a reply is an error, or does not end.
        """
        url = f"ws://{HOST}:{self._port}{WEBSOCKET}"
        try:
            async with connect(url, proxy=None, compression=None) as connection, asyncio.timeout(TIMEOUT_S):
                for _ in range(self._dice.randint(1, 3)):
                    document = {"prompt": question(self._dice), "max_tokens": 16, "stream": True}
                    await connection.send(json.dumps(document))
                    while (frame := await connection.recv()) != "[DONE]":
                        if "error" in json.loads(frame):
                            raise WrongReply(f"WebSocket: {frame[:200]!r}")
                        if self._dice.random() < 0.02:
                            connection.transport.abort()
                            return
        except websockets.ConnectionClosed as error:
            raise WrongReply(f"WebSocket: {error}") from None


def message(request: SoakRequest) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in request.headers)
    head = f"POST {request.path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {request.content_type}\r\n{more}"
    return f"{head}Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body


async def _exchange(
    request: SoakRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_s: float = 0.0
) -> bytes:
    """Sends a request, checks the reply, and closes the connection.

    :param pause_s: the seconds between two reads.
    :raises WrongReply: the reply is incomplete, or not what was requested.
    """
    parser, body = ReplyParser(), bytearray()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(message(request))
            while not parser.complete:
                if data := await reader.read(65536):
                    body += parser.feed(data)
                else:
                    parser.end_of_stream()
                await asyncio.sleep(pause_s)
    except (BrokenReply, ConnectionError) as error:
        raise WrongReply(f"{request.kind}: {type(error).__name__}: {error}") from None
    finally:
        writer.close()
    check(request, parser.status, bytes(body))
    return bytes(body)


def check(request: SoakRequest, status: int, body: bytes) -> None:
    """Checks a reply.

    :raises WrongReply: it has another status, an error in place of its end, or a traceback.
    """
    if status not in request.statuses or (status == 200 and request.mark not in body):
        raise WrongReply(f"{request.kind}: {status} {body[-300:]!r} to {request.body[:200]!r}")
    if b"Traceback (most recent call last)" in body:  # the word alone may be the model's
        raise WrongReply(f"{request.kind}: a traceback: {body[:300]!r}")
