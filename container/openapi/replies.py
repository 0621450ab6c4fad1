"""Schemas of the container's own replies. vLLM's models provide those of its API."""

from __future__ import annotations

from typing import Final

from container.openapi.bodies import TEXT, Schema, ref

COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}


def closed(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def listed(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def or_null(name: str) -> Schema:
    return {"type": [name, "null"]}


TOKEN: Final = {"id": or_null("integer"), "text": TEXT, "logprob": or_null("number")}
LMI_TOKEN: Final = {"log_prob": or_null("number")}
BYTES: Final = {"done_bytes": COUNT, "total_bytes": COUNT, "bytes_per_second": COUNT}
PAGED: Final = {"first_id": or_null("string"), "last_id": or_null("string"), "has_more": {"type": "boolean"}}
REPLIES: Final[dict[str, Schema]] = {
    "Error": closed(
        {"error": closed({"message": TEXT, "type": TEXT, "param": or_null("string"), "code": TEXT})},
        {"type": {"const": "error"}},
    ),
    "MessageReply": closed(
        {
            "id": TEXT,
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": TEXT,
            "content": listed({"type": "object", "required": ["type"], "properties": {"type": TEXT}}),
            "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
            "stop_sequence": or_null("string"),
            "usage": closed({"input_tokens": COUNT, "output_tokens": COUNT}),
        }
    ),
    "CountReply": closed({"input_tokens": COUNT}),
    "Progress": closed(
        {"status": TEXT, "stage": TEXT, "stage_seconds": NUMBER, "seconds": NUMBER},
        {
            "progress": closed({**BYTES}),
            "steps": listed(closed({"step": TEXT, "seconds": NUMBER, **BYTES})),
            "waiting": TEXT,
            "reason": TEXT,
            "neuron": {"type": "object"},
        },
    ),
    "ServedModel": closed(
        {
            "id": TEXT,
            "object": {"const": "model"},
            "created": COUNT,
            "owned_by": TEXT,
            "root": TEXT,
            "parent": or_null("string"),
            "max_model_len": COUNT,
        }
    ),
    "ModelList": closed({"object": {"const": "list"}, "data": listed(ref("ServedModel"))}),
    "ExecutionParameters": closed(
        {
            "MaxConcurrentTransforms": {"type": "integer", "minimum": 1},
            "BatchStrategy": {"enum": ["SINGLE_RECORD", "MULTI_RECORD"]},
            "MaxPayloadInMB": {"type": "integer", "minimum": 1},
        }
    ),
    "Session": closed({"session_id": TEXT, "status": {"enum": ["open", "closed"]}}),
    "Adapter": closed({"name": TEXT, "src": TEXT, "preload": {"type": "boolean"}, "pin": {"type": "boolean"}}),
    "FileList": closed({"object": {"const": "list"}, "data": listed(ref("FileObject")), **PAGED}),
    "FileGone": closed({"id": TEXT, "object": {"const": "file"}, "deleted": {"const": True}}),
    "FileForm": {
        "type": "object",
        "required": ["file", "purpose"],
        "properties": {"file": {"type": "string", "format": "binary"}, "purpose": {"const": "batch"}},
    },
    "BatchList": closed({"object": {"const": "list"}, "data": listed(ref("BatchObject")), **PAGED}),
    "AdapterDone": closed(
        {"status": TEXT}, {"name": TEXT, "src": TEXT, "preload": {"type": "boolean"}, "pin": {"type": "boolean"}}
    ),
    "AdapterList": closed({"adapters": listed(ref("Adapter"))}, {"nextPageToken": TEXT}),
    "Model": closed({"modelName": TEXT, "modelUrl": TEXT}, {"state": {"const": "failed"}, "reason": TEXT}),
    "ModelPage": closed({"models": listed(ref("Model"))}, {"nextPageToken": TEXT}),
    "ModelGone": closed({"modelName": TEXT}, {"endedRequests": COUNT}),
    "Prefill": closed(TOKEN, LMI_TOKEN),
    "Token": closed({**TOKEN, "special": {"type": "boolean"}}, LMI_TOKEN),
    "Sequence": closed(
        {
            "finish_reason": {"enum": ["length", "eos_token", "stop_sequence"]},
            "generated_tokens": COUNT,
            "seed": or_null("integer"),
            "prefill": listed(ref("Prefill")),
            "tokens": listed(ref("Token")),
        },
        {
            "inputs": TEXT,
            "top_tokens": listed(listed(ref("Token"))),
            "generated_text": TEXT,
            "best_of_sequences": listed(ref("Sequence")),
        },
    ),
    "Generated": closed({"generated_text": TEXT}, {"details": ref("Sequence")}),
    "InputsReply": {"anyOf": [ref("Generated"), listed(ref("Generated"))]},
}
# A reply of vLLM's API, if vLLM's models are not known: an object, as OpenAI documents it.
PLAIN_REPLY: Final[Schema] = {"type": "object"}
