"""Non-blocking reads from a client's socket on the engine's loop."""

from __future__ import annotations

import socket


def receive(connection: socket.socket, size: int) -> bytes | None:
    """Up to `size` bytes. None: nothing has arrived yet. Empty: the client has closed or reset the connection."""
    try:
        return connection.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
