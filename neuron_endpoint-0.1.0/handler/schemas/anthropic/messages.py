"""Parses a body of the Messages API, as the chat that it means.

vLLM 0.16 has classes for this API. They lose the id of a tool's result and the stop sequence, and know no `thinking`
(vllm/entrypoints/anthropic/serving.py). As a chat, a body gets every check and either path of a chat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from handler.engine.api_routes import Route
from handler.schemas.anthropic.chat_document import chat_document
from handler.schemas.anthropic.message_fields import CountFields, MessageFields, checked
from handler.schemas.anthropic.message_reply import CountReply, MessageReply
from handler.schemas.framing import WrappedCall
from handler.schemas.reply import AnyCall


class MessagesRoute(StrEnum):
    """A path of the Messages API."""

    MESSAGES = "/v1/messages"
    COUNT = "/v1/messages/count_tokens"


def parse(
    route: MessagesRoute, document: Mapping[str, Any], parse_route: Callable[[Route, dict[str, Any]], AnyCall]
) -> AnyCall:
    """Parses a body of a path of the API.

    :param parse_route: parses the chat, or what is given to /tokenize.
    :raises ClientError: a field is wrong. The error names it.
    """
    if route is MessagesRoute.COUNT:
        counted = parse_route(Route.TOKENIZE, chat_document(checked(document, CountFields)))
        return WrappedCall(counted, CountReply(counted.reply))
    chat = parse_route(Route.CHAT, chat_document(checked(document, MessageFields)))
    return WrappedCall(chat, MessageReply(chat.reply))
