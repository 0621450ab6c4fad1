"""Keeps the chat template of long conversations off the event loop.

vLLM 0.16 renders the template in a coroutine (renderers/hf.py, `render_messages_async`). 1,000 messages hold the loop
for 8 ms (measured), in which no other request gets a token.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

# Messages and tools that the loop renders by itself: a thread takes longer to wake.
FEW: Final = 32


def render_in_threads(renderer: Any) -> None:
    """Makes a renderer of vLLM render long conversations in a thread."""
    in_thread, on_loop = renderer.render_messages, renderer.render_messages_async

    async def rendered(messages: list[Any], params: Any) -> Any:
        tools = params.chat_template_kwargs.get("tools") or ()
        if len(messages) + len(tools) <= FEW:
            return await on_loop(messages, params)
        return await asyncio.to_thread(in_thread, messages, params)

    renderer.render_messages_async = rendered
