"""Non-blocking reads from a client's socket, and small writes to it, on the engine's loop."""

from __future__ import annotations

import socket
from contextlib import suppress


def receive(connection: socket.socket, size: int) -> bytes | None:
    """Up to `size` bytes. None: nothing has arrived yet. Empty: the client has closed or reset the connection."""
    try:
        return connection.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def send_now(connection: socket.socket, data: bytes) -> None:
    """Sends a few bytes if the connection takes them now."""
    with suppress(OSError):
        connection.send(data, socket.MSG_DONTWAIT)
