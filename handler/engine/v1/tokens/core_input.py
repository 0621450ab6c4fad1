"""Sends messages to the engine core at once, without a future of zmq's own for each.

zmq's asynchronous socket makes a future, copies keyword arguments, and combines members of enumerations for each frame.
All that vLLM sends goes through one function (`AsyncMPClient._send_input_message`). Seen on vLLM 0.16.0, 0.24.0, 0.29.0
and 0.32.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

AT_ONCE: Final = int(zmq.NOBLOCK)
MORE: Final = int(zmq.SNDMORE) | AT_ONCE
# The kind of a message, and its content. Tensors are further frames, which vLLM sends without a copy.
FRAMES: Final = 2


class CoreInput:
    """Replaces a client's way to its core's socket. Use it on the engine's loop only.

    :param client: vLLM's client of the core, which has sent nothing yet.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._socket: zmq.Socket[bytes] = zmq.Socket.shadow(client.resources.input_socket)
        self._later: asyncio.Future[Any] | None = None
        self._sent = asyncio.get_running_loop().create_future()
        self._sent.set_result(None)
        self._send_later: Callable[..., asyncio.Future[Any]] = client._send_input_message
        client._send_input_message = self._send

    def _send(self, message: Sequence[Any], core: bytes, *objects: Any) -> asyncio.Future[Any]:
        """:param objects: what vLLM keeps until tensors are sent."""
        if len(message) == FRAMES and (self._later is None or self._later.done()):
            self._client.ensure_alive()
            try:
                self._socket.send(core, MORE)
                self._socket.send(message[0], MORE)
                self._socket.send(message[1], AT_ONCE)
            except zmq.Again:  # the first frame was not taken: nothing was
                pass
            else:
                return self._sent
        self._later = self._send_later(message, core, *objects)
        return self._later
