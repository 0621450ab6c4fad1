"""A frame of a WebSocket is one JSON document, whatever the form of the reply."""

from __future__ import annotations

import pytest

from container.inference.sinks import documents


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (b'{"a":1}', ['{"a":1}']),
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', ['{"a":1}', "[DONE]"]),
        (b'event: response.created\ndata: {"a":1}\n\nevent: x\ndata: {"b":2}\n\n', ['{"a":1}', '{"b":2}']),
        (b"", []),
    ],
)
def test_each_document_is_a_frame(data: bytes, frames: list[str]) -> None:
    assert documents(data) == frames
