"""Gives the arguments of tool calls the types of the tool's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vllm.entrypoints.openai.engine.protocol import ExtractedToolCallInformation

# Parsers of vLLM 0.16.0 that leave arguments as texts in whole replies, all of them or objects and lists.
TEXT_ONLY: Final = ("deepseek_v32", "step3")
PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def with_types(found: ExtractedToolCallInformation, tools: Sequence[Any] | None) -> ExtractedToolCallInformation:
    """The same calls. A text becomes the value that it is as JSON, if the schema has that type for the argument."""
    schemas = {tool.function.name: (tool.function.parameters or {}).get("properties", {}) for tool in tools or ()}
    for call in found.tool_calls:
        arguments, properties = json.loads(call.function.arguments), schemas.get(call.function.name, {})
        typed = {name: _typed(value, properties.get(name)) for name, value in arguments.items()}
        call.function.arguments = json.dumps(typed, ensure_ascii=False)
    return found


def _typed(value: object, schema: object) -> object:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    names = [kinds] if isinstance(kinds, str) else kinds or []
    if not isinstance(value, str) or "string" in names:
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if any(type(found) in PYTHON_TYPES.get(name, ()) for name in names) else value
