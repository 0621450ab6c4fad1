"""Sends /ping at a fixed rate while a server is under load, from a separate process with blocking sockets.

`python -m benchmarks.lib.probe PORT PATH` runs until stdin closes (or four minutes have passed) and writes a list of
`Ping`. Each ping opens a connection, as a health check does, so that a slow accept counts as well.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from dataclasses import dataclass

import msgspec

from benchmarks.lib.reply_reader import BrokenReply, ReplyParser

INTERVAL_S = 1 / 20
TIMEOUT_S = 5.0
LONGEST_S = 240.0
QUESTION = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Ping:
    began: float  # CLOCK_MONOTONIC seconds
    seconds: float
    status: int  # 0: refused, timed out or not HTTP


def connects(port: int) -> bool:
    """Whether the port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def ask(port: int, path: str) -> int:
    """Returns the status of one health check; 0 if there was no reply."""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(QUESTION.format(path=path).encode())
            parser = ReplyParser()
            while not parser.status and (data := connection.recv(4096)):
                parser.feed(data)
            return parser.status
    except (OSError, BrokenReply):
        return 0


def probe(port: int, path: str, stop: int) -> list[Ping]:
    """Sends a ping every `INTERVAL_S` until the descriptor `stop` becomes readable.

    A ping that is delayed by a slow reply to the one before is timed from when it was due. Otherwise a stall of 200 ms
    would count once, although four pings were due.
    """
    pings: list[Ping] = []
    due = time.monotonic()
    end = due + LONGEST_S
    while due < end:
        late = time.monotonic() > due
        readable, _, _ = select.select([stop], [], [], max(0.0, due - time.monotonic()))
        if readable:
            break
        began = due if late and pings else time.monotonic()
        status = ask(port, path)
        pings.append(Ping(began, time.monotonic() - began, status))
        due += INTERVAL_S
    return pings


def main() -> None:
    pings = probe(int(sys.argv[1]), sys.argv[2], sys.stdin.fileno())
    sys.stdout.buffer.write(msgspec.json.encode(pings))


if __name__ == "__main__":
    main()
