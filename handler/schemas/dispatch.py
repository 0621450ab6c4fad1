"""Which schema a body of /invocations is: decided here, once, by one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handler.engine.engine import Engine
from handler.errors import InvalidBody, MissingField
from handler.schemas import chat, completion, inputs
from handler.schemas.reply import Call

Parse = Callable[[Mapping[str, Any], Engine], Call]
BY_KEY: Mapping[str, Parse] = {"messages": chat.parse, "prompt": completion.parse, "inputs": inputs.parse}


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """The call that a body asks for.

    :raises ClientError: it has no prompt, more than one kind of prompt, or a field that is wrong.
    """
    keys = [key for key in BY_KEY if key in document]
    if not keys:
        raise MissingField("messages", "send 'messages' (chat), 'prompt' (completion) or 'inputs' (TGI, LMI)")
    if len(keys) > 1:
        raise InvalidBody(f"it has both '{keys[0]}' and '{keys[1]}'")
    return BY_KEY[keys[0]](document, engine)
