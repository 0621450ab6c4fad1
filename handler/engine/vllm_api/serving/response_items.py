"""Items of a response's `input`, tried as vLLM will read them. Seen on 0.16.0 (entrypoints/openai/responses/utils.py).

OpenAI's client library knows some thirty kinds of items; vLLM makes messages of messages, calls, their outputs and
reasoning, hands every other kind on as it is, and raises far inside (a 500) because such a one has no role.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm.entrypoints.openai.responses.utils import construct_chat_messages_with_tool_call

from handler.errors import InvalidField, UnsupportedField

FIX = "send messages of text, function calls, their outputs, or reasoning with a text"


def check(items: object) -> None:
    """:raises ClientError: naming the item that cannot become a message."""
    for index, item in enumerate(items if isinstance(items, list) else ()):
        try:
            messages = construct_chat_messages_with_tool_call([item])
        except ValueError as error:
            raise InvalidField(f"input[{index}]", str(error).rstrip(".")) from None
        except (AttributeError, IndexError, KeyError, TypeError):
            raise UnsupportedField(f"input[{index}]", FIX) from None
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise UnsupportedField(f"input[{index}]", FIX)
