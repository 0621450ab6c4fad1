"""Adds the fields of OpenAI's events to those of vLLM's streamed transcriptions, so that clients of either read them.

OpenAI's API has events of the types `transcript.text.delta` and, with the whole text at the end,
`transcript.text.done`. vLLM sends chunks with `choices`, and no whole text (0.24.0 to 0.32.0).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from handler.engine.v1.serving.serving_errors import ERROR_FRAME

DONE: Final = "data: [DONE]\n\n"
DELTA, WHOLE = "transcript.text.delta", "transcript.text.done"


async def events(source: Any) -> AsyncIterator[str]:
    """:param source: vLLM's server-sent events."""
    texts: list[str] = []
    chunk: dict[str, Any] = {}
    try:
        async for frame in source:
            if frame.startswith(ERROR_FRAME):
                yield frame
            elif frame == DONE:
                chunk.pop("usage", None)
                done = {"type": WHOLE, "text": "".join(texts), "choices": [{"delta": {"content": ""}}]}
                yield _frame({**chunk, **done})
                yield frame
            else:
                chunk = json.loads(frame.removeprefix("data: "))
                texts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
                yield _frame({**chunk, "type": DELTA, "delta": texts[-1]} if chunk["choices"] else chunk)
    finally:
        await source.aclose()


def _frame(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"
