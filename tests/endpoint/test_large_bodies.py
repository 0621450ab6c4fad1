"""Large bodies that used to keep everybody waiting: each is rejected with an error that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 2}
COMPLETION: dict[str, Any] = {"prompt": "Who are you?", "max_tokens": 2}
INPUTS: dict[str, Any] = {"inputs": "Who are you?", "parameters": {"max_new_tokens": 2}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def rejected(endpoint: ServeProcess, body: dict[str, Any] | bytes, kind: str = "application/json") -> str:
    """What a body that must be rejected is told to fix: the field, or the message where it is about the whole."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = endpoint.client.post("/invocations", content=content, headers={"Content-Type": kind})
    assert reply.status_code == 400, reply.text[:300]
    error = reply.json()["error"]
    return str(error["param"] or error["message"])


@pytest.mark.parametrize("body", [CHAT, COMPLETION, INPUTS], ids=["chat", "completion", "inputs"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", [f"s{index}" for index in range(200_000)]),
        ("bad_words", [f"w{index}" for index in range(50_000)]),
        ("bad_words", [""]),
        ("stop_token_ids", [1] * 200_000),
    ],
    ids=["stop", "bad_words", "empty bad word", "stop_token_ids"],
)
def test_a_list_that_is_too_long_is_named(
    endpoint: ServeProcess, body: dict[str, Any], stream: bool, field: str, value: object
) -> None:
    more = {field: value}
    if "parameters" in body:
        more = {"parameters": {**body["parameters"], field: value}}
    assert field in rejected(endpoint, {**body, **more, "stream": stream})


def test_a_schema_that_is_nested_too_deeply_is_rejected(endpoint: ServeProcess) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "a", "schema": nested(450)}}
    assert "nested too deeply" in rejected(endpoint, {**CHAT, "response_format": response_format})


def test_a_body_of_millions_of_values_is_rejected(endpoint: ServeProcess) -> None:
    assert "more than 262,144 values" in rejected(endpoint, b'{"prompt":[' + b"[]," * 6_500_000 + b"[]]}")
    assert "more than 262,144 values" in rejected(endpoint, {**COMPLETION, "stop_token_ids": [1] * 1_000_000})


def test_a_batch_of_empty_lines_is_rejected(endpoint: ServeProcess) -> None:
    assert "more than 16,384 lines" in rejected(endpoint, b"\n" * (3 << 20), "application/jsonlines")


def test_the_endpoint_answers_as_before(endpoint: ServeProcess) -> None:
    (core,) = endpoint.engine_pids()
    assert endpoint.ping()[0] == 200
    assert endpoint.client.post("/invocations", json=CHAT).status_code == 200
    assert endpoint.engine_pids() == [core]
