"""Grammars that ended or stalled the engine: each is answered, and the engine's process is the one from before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import version

pytestmark = pytest.mark.engine
DEEP: dict[str, Any] = {"type": "integer"}
for _ in range(40):
    DEEP = {"type": "object", "properties": {"a": DEEP, "b": DEEP if len(json.dumps(DEEP)) < 1000 else {}}}

# Each ended the engine's process, stalled it, or filled its memory on xgrammar 0.1.29, or was a 500.
HOSTILE: dict[str, dict[str, Any]] = {
    "empty rule": {"grammar": "root ::="},
    "backslash": {"regex": "\\"},
    "flag": {"regex": "(?i)abc"},
    "thrice nested repetitions": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "nested any": {"regex": "(.{0,1000}){0,1000}"},
    "repeated choices": {"regex": "(a|b|c|d){500}" * 200},
    "property class": {"json": {"type": "string", "pattern": r"^\p{L}+$"}},
    "flag in a schema": {"json": {"type": "string", "pattern": "(?i)^abc$"}},
    "exclusiveMinimum": {"json": {"type": "integer", "exclusiveMinimum": True}},
    "open group": {"json": {"type": "object", "patternProperties": {"^(": {"type": "string"}}}},
    "minProperties": {"json": {"type": "object", "minProperties": 1000000}},
    "maxItems": {"json": {"type": "array", "items": {"type": "integer", "multipleOf": 3}, "maxItems": 1000000000}},
    "format of a wrong type": {"json": {"not": {"type": "string", "pattern": "[^a-z]", "format": {"type": "number"}}}},
    "nested EBNF": {"grammar": 'root ::= (("a"{1,1000}){1,1000}){1,1000}'},
    "deep schema": {"json": DEEP},
    "no choices": {"choice": []},
    "no grammar": {"json_object": False},
    "unknown tag": {"structural_tag": '{"type": "structural_tag", "format": {"type": "no such format"}}'},
}

# On a busy machine a trial may have had too little processor time when the request's own time is over.
TRIES = 4


def ask(endpoint: ServeProcess, grammar: dict[str, Any], *, stream: bool) -> tuple[int, dict[str, Any]]:
    body = {"prompt": "a", "max_tokens": 4, "temperature": 0, "structured_outputs": grammar, "stream": stream}
    for _ in range(TRIES):
        reply = endpoint.client.post("/v1/completions", json=body, timeout=120)
        if reply.status_code != 504:
            break
    return reply.status_code, reply.json() if reply.status_code != 200 else {}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_answered_and_the_engine_lives(endpoint: ServeProcess, name: str) -> None:
    (core,) = endpoint.engine_pids()
    status, error = ask(endpoint, HOSTILE[name], stream=False)
    assert status in {200, 400}, error
    if status == 400:
        assert error["error"]["message"]
        assert "Traceback" not in json.dumps(error)
    assert ask(endpoint, HOSTILE[name], stream=True)[0] == status
    assert endpoint.engine_pids() == [core]
    assert ask(endpoint, {"regex": "[a-z]+"}, stream=False)[0] == 200


@pytest.mark.parametrize(
    "grammar",
    [{"json": {"type": "integer", "multipleOf": 3}}, HOSTILE["unknown tag"], HOSTILE["format of a wrong type"]],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_schema_that_cannot_be_enforced_is_rejected(
    endpoint: ServeProcess, grammar: dict[str, Any], stream: bool
) -> None:
    status, error = ask(endpoint, grammar, stream=stream)
    assert (status, error["error"]["param"]) == (400, "structured_outputs")


CHOICE = {"prompt": "a", "structured_outputs": {"choice": ["yes"]}, "allowed_token_ids": [1]}
LETTER = {"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": "y"}, "min_tokens": 9}}


@pytest.mark.parametrize(
    ("field", "answering", "body"),
    [
        ("structured_outputs", ["0.16.0"], CHOICE),
        ("structured_outputs", ["0.16.0"], {**CHOICE, "stream": True}),
        ("parameters.grammar", ["0.16.0", "0.29.0", "0.32.0"], LETTER),
    ],
    ids=["whole", "stream", "inputs"],
)
def test_fields_that_leave_the_grammar_no_token_are_the_requests_fault(
    endpoint: ServeProcess, field: str, answering: list[str], body: dict[str, Any]
) -> None:
    """Found by the fuzz: some versions of vLLM go on without the grammar, others answer with an internal error."""
    reply = endpoint.client.post("/invocations", json=body, timeout=120)
    if version() in answering:
        assert reply.status_code == 200
    else:
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)
