"""Visits of a soak test that harm a server which is not careful. Each ends within seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import cache
from random import Random

import websockets
from websockets.asyncio.client import connect

from benchmarks.fuzz.fuzz_sequences import sequence
from benchmarks.lib.reply_reader import BrokenReply, ReplyParser
from benchmarks.soak.soak_requests import question
from benchmarks.soak.soak_visit import HOST, TIMEOUT_S, WEBSOCKET, WrongReply

# The engine's core keeps the grammars that it has compiled, so a soak has a fixed number of bodies.
BODIES = 200
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
GARBAGE = (b"\x16\x03\x01\x02\x00\x01", b"GET / SPDY/3\r\n\r\n", b"\r\n" * 500, b"POST / HTTP/1.1\r\n" + b"a" * 40_000)


@cache
def hostile_requests() -> tuple[bytes, ...]:
    """Requests of the fuzz, as they are sent."""
    found: list[bytes] = []
    number = 0
    while len(found) < BODIES:
        found += [sent.raw for step in sequence(1, number) for sent in step.requests]
        number += 1
    return tuple(found[:BODIES])


async def hostile_visit(port: int, dice: Random) -> None:
    """Makes one visit.

    :raises WrongReply: the server failed, or ended a reply within.
    """
    await dice.choice(VISITS)(port, dice)


async def _slow_head(port: int, dice: Random) -> None:
    """Sends a head byte by byte, and leaves."""
    _, writer = await asyncio.open_connection(HOST, port)
    try:
        for byte in (HEAD % 10)[: dice.randint(5, 40)]:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.05)
    except OSError:
        pass
    finally:
        _leave(writer, dice)


async def _slow_body(port: int, dice: Random) -> None:
    """Sends a body in pieces, whole or not."""
    body = json.dumps({"prompt": question(dice), "max_tokens": 2, "user": "x" * dice.choice((10, 20_000))}).encode()
    pieces = [body[at : at + len(body) // 8] for at in range(0, len(body), len(body) // 8)]
    _, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(HEAD % len(body))
        for piece in pieces[: dice.randint(1, len(pieces))]:
            writer.write(piece)
            await asyncio.sleep(0.2)
    except OSError:
        pass
    finally:
        _leave(writer, dice)


async def _half_closed(port: int, dice: Random) -> None:
    """Closes its own side after the request, or within it, and reads on."""
    body = json.dumps({"prompt": question(dice), "max_tokens": 4, "stream": dice.random() < 0.5}).encode()
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(HEAD % (len(body) + dice.choice((0, 0, 10))) + body)
        writer.write_eof()
        async with asyncio.timeout(TIMEOUT_S):
            while await reader.read(65536):
                pass
    except OSError:
        pass
    finally:
        _leave(writer, dice)


async def _idle_websocket(port: int, dice: Random) -> None:
    """Opens a WebSocket, and sends nothing, or what is no body."""
    try:
        async with connect(f"ws://{HOST}:{port}{WEBSOCKET}", proxy=None, compression=None) as connection:
            if dice.random() < 0.5:
                await connection.send(dice.choice(("", "[", "{}", b"\xff", '{"prompt": 1}')))
            await asyncio.sleep(dice.uniform(0, 3))
            if dice.random() < 0.5:
                connection.transport.abort()
    except websockets.WebSocketException:
        pass


async def _no_http(port: int, dice: Random) -> None:
    """Sends bytes that are no request."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(dice.choice(GARBAGE))
        async with asyncio.timeout(1.0):
            await reader.read(4000)
    except OSError:  # also the time-out
        pass
    finally:
        _leave(writer, dice)


async def _hostile_body(port: int, dice: Random) -> None:
    await send_hostile(port, dice.choice(hostile_requests()))


async def send_hostile(port: int, request: bytes) -> None:
    """Sends a request of the fuzz, and reads its reply.

    :raises WrongReply: a status of 5xx, or a reply that does not end.
    """
    reader, writer = await asyncio.open_connection(HOST, port)
    parser = ReplyParser()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(request)
            while not parser.complete:
                if data := await reader.read(65536):
                    parser.feed(data)
                else:
                    parser.end_of_stream()
    except (BrokenReply, OSError) as error:
        raise WrongReply(f"hostile body: {error!r} to {request[-300:]!r}") from None
    finally:
        writer.close()
    if parser.status >= 500:
        raise WrongReply(f"hostile body: {parser.status} to {request[-300:]!r}")


def _leave(writer: asyncio.StreamWriter, dice: Random) -> None:
    if dice.random() < 0.5:
        writer.transport.abort()
    writer.close()


VISITS: tuple[Callable[[int, Random], Awaitable[None]], ...] = (
    _slow_head, _slow_body, _half_closed, _idle_websocket, _no_http, _hostile_body, _hostile_body, _hostile_body,
)  # fmt: skip
