"""Sends /ping at a fixed rate while a server is under load, from a separate process with blocking sockets.

`python -m benchmarks.lib.probe PORT` runs until stdin closes (or four minutes have passed) and writes a list of `Ping`.
Each ping opens a connection, as a health check does, so that a slow accept counts as well.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from dataclasses import dataclass

import msgspec

INTERVAL_S = 1 / 20
TIMEOUT_S = 5.0
LONGEST_S = 240.0
QUESTION = b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


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


def ask(port: int) -> int:
    """Returns the status of one /ping; 0 if there was no reply."""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(QUESTION)
            reply = b""
            while b"\r\n" not in reply:
                data = connection.recv(4096)
                if not data:
                    return 0
                reply += data
    except OSError:
        return 0
    status = reply[9:12]
    return int(status) if reply.startswith(b"HTTP/1.") and status.isdigit() else 0


def probe(port: int, stop: int) -> list[Ping]:
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
        status = ask(port)
        pings.append(Ping(began, time.monotonic() - began, status))
        due += INTERVAL_S
    return pings


def main() -> None:
    pings = probe(int(sys.argv[1]), sys.stdin.fileno())
    sys.stdout.buffer.write(msgspec.json.encode(pings))


if __name__ == "__main__":
    main()
