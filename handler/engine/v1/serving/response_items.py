"""Checks a response's conversation: items of `input` with the function by which vLLM converts them to messages.

Seen on 0.16.0 (entrypoints/openai/responses/utils.py). OpenAI's client library has about thirty kinds of items. vLLM
converts messages, function calls, their outputs and reasoning. It passes every other kind on unchanged, and later fails
with an internal error (500), because such an item has no role.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_chat_messages_with_tool_call

from handler.errors import InvalidField, UnsupportedField

FIX = "send text messages, function calls, function call outputs, or reasoning with text"


def check(request: ResponsesRequest) -> None:
    """Checks a request to a model other than gpt-oss, the only one whose `previous_input_messages` vLLM reads.

    :raises ClientError: an item cannot be converted to a message, or earlier ones would be dropped. The error names it.
    """
    if getattr(request, "previous_input_messages", None):
        raise UnsupportedField("previous_input_messages", "send the whole conversation as 'input'")
    items = request.input
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
