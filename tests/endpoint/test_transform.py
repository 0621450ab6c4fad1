"""Batch transform as SageMaker speaks to the container, on the real engine."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

NAMES = ["ping", "hello", "thanks", "who-are-you"] * 6


def test_a_file_of_questions_comes_back_as_a_file_of_answers(endpoint: ServeProcess) -> None:
    asked = [
        {"messages": [{"role": "user", "content": by_name(name).questions[0]}], "temperature": 0} for name in NAMES
    ]
    lines = [json.dumps(body) for body in asked]
    lines.insert(5, '{"messages": [')
    lines.insert(9, json.dumps({"messages": [{"role": "user", "content": "x" * 9000}]}))
    reply = endpoint.client.post(
        "/invocations", content="\n".join(lines) + "\n", headers={"Content-Type": "application/jsonlines"}
    )
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/jsonlines"
    assert int(reply.headers["content-length"]) == len(reply.content)
    found = [json.loads(line) for line in reply.content.splitlines()]
    assert found.pop(9)["error"]["code"] == "context_length_exceeded"
    assert found.pop(5)["error"]["code"] == "invalid_body"
    assert [one["choices"][0]["message"]["content"] for one in found] == [by_name(name).answer for name in NAMES]


def test_execution_parameters_are_this_engine_s(endpoint: ServeProcess) -> None:
    reply = endpoint.client.get("/execution-parameters")
    assert reply.json() == {"MaxConcurrentTransforms": 16, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 6}


def test_late_requests_free_their_slots(endpoint: ServeProcess) -> None:
    """Forty at once for 16 slots, each of a second's work and more."""
    body = {"prompt": "Question: Tell me a story.\nAnswer:", "max_tokens": 1000, "ignore_eos": True, "seed": 1}

    def ask(_: int) -> tuple[int, str]:
        headers = {"X-Amzn-SageMaker-InvocationTimeoutSeconds": "1"}
        reply = endpoint.client.post("/invocations", json=body, headers=headers)
        return reply.status_code, reply.json().get("error", {}).get("code", "")

    with ThreadPoolExecutor(40) as pool:
        found = set(pool.map(ask, range(40)))
    assert (504, "deadline_exceeded") in found
    assert found <= {(504, "deadline_exceeded"), (200, "")}
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_engine") == 0, 5)
