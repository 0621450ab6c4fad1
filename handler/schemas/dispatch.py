"""Which schema a body of /invocations is: decided here, once, by one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handler.engine.engine import Engine
from handler.errors import InvalidBody, MissingField
from handler.schemas import chat, completion, inputs
from handler.schemas.asked import CHAT, COMPLETION, Asked
from handler.schemas.framing import framed
from handler.schemas.reply import AnyCall

Parse = Callable[[Mapping[str, Any], Engine], AnyCall]
BY_KEY: Mapping[str, str] = {"messages": CHAT, "prompt": COMPLETION, "inputs": "inputs"}


def parse(document: Mapping[str, Any], engine: Engine, asked: Asked | None = None) -> AnyCall:
    """The call that a body of /invocations asks for.

    :raises ClientError: it has no prompt, more than one kind of prompt, or a field that is wrong.
    """
    asked = asked or Asked()
    schema = asked.schema or _by_key(document)
    if schema == CHAT:
        return framed(chat.parse(document, engine), asked.framing(schema))
    if schema == COMPLETION:
        return framed(completion.parse(document, engine), asked.framing(schema))
    return inputs.parse(document, engine, asked)


def _by_key(document: Mapping[str, Any]) -> str:
    keys = [key for key in BY_KEY if key in document]
    if not keys:
        raise MissingField("messages", "send 'messages' (chat), 'prompt' (completion) or 'inputs' (TGI, LMI)")
    if len(keys) > 1:
        raise InvalidBody(f"it has both '{keys[0]}' and '{keys[1]}'")
    return BY_KEY[keys[0]]
