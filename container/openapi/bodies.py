"""Schemas of the bodies, from the tables that parse them. On the full path vLLM's own models say what else there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from container.pipeline.session_requests import CLOSE, NEW, REQUEST_TYPE
from container.routes.adapter_routes import AdapterFields
from container.routes.model_routes import ModelFields
from handler.engine.api_routes import Route
from handler.schemas.openai.chat import ROLES, ChatFields
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.openai.sampling_fields import FULL, REFUSED
from handler.schemas.openai.vllm_path import PROMPTS
from handler.schemas.tgi_lmi.inputs_fields import UNSERVED, InputsFields, Parameters

Schema = dict[str, Any]
REF: Final = "#/components/schemas/"
# A route's body and reply among the components.
NAMES: Final[Mapping[Route, str]] = {
    Route.CHAT: "Chat",
    Route.COMPLETIONS: "Completion",
    Route.RESPONSES: "Response",
    Route.EMBEDDINGS: "Embedding",
    Route.TOKENIZE: "Tokenize",
    Route.DETOKENIZE: "Detokenize",
}
TABLES: Final[Mapping[Route, type[msgspec.Struct]]] = {Route.CHAT: ChatFields, Route.COMPLETIONS: CompletionFields}
OTHERS: Final[Sequence[type[msgspec.Struct]]] = (InputsFields, Parameters, AdapterFields, ModelFields)
# An object, of which the short path takes text, and the full path what vLLM's model of messages says.
MESSAGE: Final[Schema] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": list(ROLES)},
        "content": {"type": ["string", "array", "null"], "items": {"type": "object"}},
        "name": {"type": "string"},
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
        "tool_call_id": {"type": "string"},
    },
}


def ref(name: str) -> Schema:
    return {"$ref": REF + name}


def bodies(served: Mapping[Route, Schema]) -> dict[str, Schema]:
    """Components by name.

    :param served: what vLLM's models say of a route's body; empty where its serving classes are not known.
    """
    _, found = msgspec.json.schema_components((*TABLES.values(), *OTHERS), ref_template=REF + "{name}")
    components: dict[str, Schema] = dict(found)
    components["Message"] = MESSAGE
    for route, name in NAMES.items():
        table = TABLES.get(route)
        own = None if table is None else components.pop(table.__name__)
        theirs = served.get(route)
        if own is not None:
            own = _refusing(own, REFUSED if theirs is not None else {**FULL, **REFUSED})
        if own is not None or theirs is not None:
            components[f"{name}Request"] = _joined(theirs, own, PROMPTS[route])
    components["ChatRequest"]["properties"]["messages"] = {"type": "array", "minItems": 1, "items": ref("Message")}
    components["Parameters"] = _refusing(components["Parameters"], UNSERVED)
    fields = components.pop("InputsFields")
    fields["properties"]["parameters"] = {"anyOf": [ref("Parameters"), {"type": "null"}]}
    components["InputsRequest"] = {**fields, "title": "InputsRequest"}
    components["SessionRequest"] = {
        "type": "object",
        "required": [REQUEST_TYPE],
        "properties": {REQUEST_TYPE: {"enum": [NEW, CLOSE]}},
        "additionalProperties": False,
    }
    names = [f"{name}Request" for name in NAMES.values() if f"{name}Request" in components]
    components["Invocation"] = {
        "description": "What it is, is decided by the custom attributes route= and schema=, else by one key: messages, "
        "prompt, inputs, input or tokens (docs/requests.md).",
        "anyOf": [ref(name) for name in (*names, "InputsRequest", "SessionRequest")],
    }
    return components


def _refusing(schema: Schema, refused: Mapping[str, tuple[object, ...]]) -> Schema:
    """With the fields that are rejected with an error that names it: they may have the values that ask for nothing."""
    asking = {name: {"enum": list(values)} for name, values in refused.items()}
    return {**schema, "properties": {**schema["properties"], **asking}}


def _joined(theirs: Schema | None, own: Schema | None, prompt: str) -> Schema:
    """vLLM's fields, and ours in their place where the same name has bounds of our own."""
    if theirs is None:
        assert own is not None, "the caller has one of the two"
        return own
    if "anyOf" in theirs:
        return theirs
    shown = {name: value for name, value in theirs.items() if name not in ("description", "title")}
    if own is not None:
        shown["properties"] = {**theirs["properties"], **own["properties"]}
    shown.setdefault("required", [] if own is not None else [prompt])
    return shown
