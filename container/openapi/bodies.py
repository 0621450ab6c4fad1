"""Schemas of the bodies, from the tables that parse them. vLLM's own models have the remaining fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from container.inference.session_requests import CLOSE, NEW, REQUEST_TYPE
from container.routes.adapter_routes import AdapterFields
from container.routes.model_routes import ModelFields
from handler.batches.batch_objects import BatchObject, FileObject
from handler.batches.batches import BatchFields
from handler.engine.api_routes import SPEECH, Route
from handler.schemas.anthropic.message_fields import VERSION_FIELD, CountFields, MessageFields
from handler.schemas.dispatch import BODIES, BY_KEY, BY_SECONDARY_KEY
from handler.schemas.openai.chat import ChatFields
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.openai.vllm_path import PROMPTS
from handler.schemas.request_fields import Body, unsupported
from handler.schemas.tgi_lmi.inputs_fields import InputsFields, Parameters

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
REF: Final = "#/components/schemas/"
# The names of a route's body and reply among the components.
NAMES: Final[Mapping[Route, str]] = {
    Route.CHAT: "Chat",
    Route.COMPLETIONS: "Completion",
    Route.RESPONSES: "Response",
    Route.EMBEDDINGS: "Embedding",
    Route.TOKENIZE: "Tokenize",
    Route.DETOKENIZE: "Detokenize",
    Route.SCORE: "Score",
    Route.RERANK: "Rerank",
    Route.CLASSIFY: "Classification",
    Route.POOLING: "Pooling",
    Route.TRANSCRIPTIONS: "Transcription",
    Route.TRANSLATIONS: "Translation",
}
TABLES: Final[Mapping[Route, type[msgspec.Struct]]] = {Route.CHAT: ChatFields, Route.COMPLETIONS: CompletionFields}
OTHERS: Final[Sequence[type[msgspec.Struct]]] = (
    InputsFields,
    Parameters,
    AdapterFields,
    BatchFields,
    BatchObject,
    FileObject,
    ModelFields,
    MessageFields,
    CountFields,
)
# A message. vLLM's own model of messages allows more kinds of content.
MESSAGE: Final[Schema] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"type": "string", "minLength": 1},
        "content": {"type": ["string", "array", "null"], "items": {"type": "object"}},
        "name": TEXT,
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
        "tool_call_id": TEXT,
    },
}


def ref(name: str) -> Schema:
    return {"$ref": REF + name}


def bodies(served: Mapping[Route, Schema]) -> dict[str, Schema]:
    """The components by name.

    :param served: the schemas of vLLM's models for the routes' bodies; empty if its serving classes are not known.
    """
    _, tables = msgspec.json.schema_components((*TABLES.values(), *OTHERS), ref_template=REF + "{name}")
    components: dict[str, Schema] = dict(tables)
    components["Message"] = MESSAGE
    for route, name in NAMES.items():
        table = TABLES.get(route)
        own = None if table is None else components.pop(table.__name__)
        theirs = served.get(route)
        if own is not None:
            own = _with_unsupported(own, unsupported(BODIES[route], vllm=theirs is not None))
        if own is not None or theirs is not None:
            components[f"{name}Request"] = _joined(theirs, own, PROMPTS[route])
    components["ChatRequest"]["properties"]["messages"] = {"type": "array", "minItems": 1, "items": ref("Message")}
    components["MessageRequest"] = components.pop("MessageFields")
    components["CountRequest"] = components.pop("CountFields")
    components["Parameters"] = _with_unsupported(components["Parameters"], unsupported(Body.PARAMETERS, vllm=False))
    fields = components.pop("InputsFields")
    fields["properties"]["parameters"] = {"anyOf": [ref("Parameters"), {"type": "null"}]}
    components["InputsRequest"] = {**fields, "title": "InputsRequest"}
    components["SessionRequest"] = {
        "type": "object",
        "required": [REQUEST_TYPE],
        "properties": {REQUEST_TYPE: {"enum": [NEW, CLOSE]}},
        "additionalProperties": False,
    }
    names = [
        f"{name}Request" for route, name in NAMES.items() if route not in SPEECH and f"{name}Request" in components
    ]
    components["Invocation"] = {
        "description": "The custom attributes route= and schema= decide which of these it is. Without them one key "
        f"does: {', '.join((VERSION_FIELD, *BY_KEY, *BY_SECONDARY_KEY))} (docs/requests.md).",
        "anyOf": [ref(name) for name in (*names, "MessageRequest", "InputsRequest", "SessionRequest")],
    }
    return components


def _with_unsupported(schema: Schema, refused: Mapping[str, tuple[object, ...]]) -> Schema:
    """The schema with the unsupported fields. These may only have the values that request nothing."""
    unsupported = {name: {"enum": list(values)} for name, values in refused.items()}
    return {**schema, "properties": {**unsupported, **schema["properties"]}}


def _joined(theirs: Schema | None, own: Schema | None, prompt: str) -> Schema:
    """vLLM's fields, replaced by ours where both have the same name."""
    if theirs is None:
        assert own is not None, "the caller passes at least one"
        return own
    if "anyOf" in theirs:
        return theirs
    shown = {name: value for name, value in theirs.items() if name not in ("description", "title")}
    if own is not None:
        shown["properties"] = {**theirs["properties"], **own["properties"]}
    shown.setdefault("required", [] if own is not None else [prompt])
    return shown
