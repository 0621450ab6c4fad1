"""The sink of a WebSocket message: each JSON document of the reply becomes one frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from container.inference.sinks import CallSink, StreamSink
from handler.engine.generation.generation import StopReason
from handler.errors import EndpointError
from handler.schemas.reply import encode


def documents(data: bytes) -> list[str]:
    """The JSON documents in a reply's bytes, which are server-sent events, lines or one body."""
    parts = data.split(b"\n")
    if data.startswith((b"data:", b"event:")):
        parts = [part.removeprefix(b"data:") for part in parts if part.startswith(b"data:")]
    return [part.strip().decode() for part in parts if part.strip()]


@dataclass(slots=True, eq=False, repr=False)
class WebSocketSink(StreamSink):
    """Sends the reply to one message as frames."""

    stream: bool = field(kw_only=True)
    send: Callable[[str], None] = field(kw_only=True)

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if self.stream:
            self._send(self.event(text, token_ids, finish_reason, stop_reason))
        else:
            self.tokens, self.finish = len(token_ids), finish_reason
            self._send(self.reply.whole(text, token_ids, finish_reason, stop_reason))
        if finish_reason is not None:
            self._send(self.reply.closing() if self.stream else b"")
            self.end()

    def fail(self, error: EndpointError) -> None:
        self.send(encode(error.document()).decode())
        CallSink.fail(self, error)

    def _send(self, data: bytes) -> None:
        for document in documents(data):
            self.send(document)
