"""Reading from a client's socket on the engine's loop, which must not wait."""

from __future__ import annotations

import socket


def receive(connection: socket.socket, size: int) -> bytes | None:
    """Up to `size` bytes of what is there. None: nothing yet. Empty: the client has closed its end, or reset it."""
    try:
        return connection.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
