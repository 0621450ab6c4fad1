"""The sink of a WebSocket message: each JSON document of the reply becomes one frame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from container.connection.socket_writer import CLIENT_CLOSED
from handler.errors import EndpointError
from handler.schemas.reply import Reply, RunningCall, encode


def documents(data: bytes) -> list[str]:
    """The JSON documents in a reply's bytes, which are server-sent events, lines or one body."""
    parts = data.split(b"\n")
    if data.startswith((b"data:", b"event:")):
        parts = [part.removeprefix(b"data:") for part in parts if part.startswith(b"data:")]
    return [part.strip().decode() for part in parts if part.strip()]


class WebSocketSink:
    """Sends the reply to one message as frames, then wakes the thread that waits. Runs on the engine's loop.

    :ivar first_token, last_token: monotonic seconds; only for a stream.
    """

    __slots__ = (
        "_opened",
        "_reply",
        "_send",
        "_stream",
        "done",
        "error",
        "finish",
        "first_token",
        "last_token",
        "running",
        "tokens",
    )

    def __init__(self, reply: Reply, stream: bool, send: Callable[[str], None]) -> None:
        self._reply = reply
        self._stream = stream
        self._send = send
        self._opened = False
        self.running: RunningCall | None = None
        self.done = threading.Event()
        self.error: EndpointError | None = None
        self.finish: str | None = None
        self.tokens = 0
        self.first_token: float | None = None
        self.last_token: float | None = None

    @property
    def left_reason(self) -> str | None:
        return CLIENT_CLOSED if self.error is None and self.finish is None else None

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self.tokens += len(token_ids)
        self.finish = finish_reason
        if not self._stream:
            self._send_documents(self._reply.whole(text, token_ids, finish_reason, stop_reason))
            self.done.set()
            return
        self.last_token = time.monotonic()
        self.first_token = self.first_token or self.last_token
        event = self._reply.event(text, token_ids, finish_reason, stop_reason)
        if not self._opened and (event or finish_reason is not None):
            self._opened = True
            self._send_documents(self._reply.opening())
        self._send_documents(event)
        if finish_reason is not None:
            self._send_documents(self._reply.closing())
            self.done.set()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self._send(encode(error.document()).decode())
        self.done.set()

    def _send_documents(self, data: bytes) -> None:
        for document in documents(data):
            self._send(document)
