"""The sink of a WebSocket message: each JSON document of the reply becomes one frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from container.inference.sinks import StreamSink
from handler.engine.generation.generation import StopReason


def documents(data: bytes) -> list[str]:
    """The JSON documents in a reply's bytes, which are server-sent events, lines or one body."""
    parts = data.split(b"\n")
    if data.startswith((b"data:", b"event:")):
        parts = [part.removeprefix(b"data:") for part in parts if part.startswith(b"data:")]
    return [part.strip().decode() for part in parts if part.strip()]


def send_documents(data: bytes, send: Callable[[str], None]) -> None:
    """Sends each document as a frame."""
    for document in documents(data):
        send(document)


@dataclass(slots=True, eq=False, repr=False)
class WebSocketSink(StreamSink):
    """Sends the stream that answers one message as frames. An error is sent by whoever waits for the end."""

    send: Callable[[str], None] = field(kw_only=True)

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        send_documents(self.event(text, token_ids, finish_reason, stop_reason), self.send)
        if finish_reason is not None:
            send_documents(self.reply.closing(), self.send)
            self.end()
