"""What an endpoint answers whatever vLLM is installed: plain chats, completions and `inputs`, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import sample_model
from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
CHAT = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
COMPLETION = {"prompt": f"Question: {QUESTION}\nAnswer:", "temperature": 0, "max_tokens": 100}
INPUTS = {"inputs": COMPLETION["prompt"], "parameters": {"max_new_tokens": 100}}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """`serve` with the settings that every vLLM has."""
    served = ServeProcess(tmp_path_factory.mktemp("plain"), {"ENDPOINT_MODEL": str(sample_model.path())})
    try:
        served.wait_port()
        served.wait_ready()
        yield served
    finally:
        below = psutil.Process(served.process.pid).children(recursive=True)
        status = served.terminate()
    assert status == 0, served.log
    assert not psutil.wait_procs(below, timeout=60)[1], "no process stays"


def text_of(reply: Any) -> str:
    choice = reply["choices"][0]
    return str(choice.get("text") or choice.get("message", choice.get("delta", {})).get("content") or "")


def test_it_is_healthy(plain: ServeProcess) -> None:
    assert plain.client.get("/ping").status_code == 200


@pytest.mark.parametrize("body", [CHAT, COMPLETION])
def test_whole_and_streamed_are_the_same(plain: ServeProcess, body: dict[str, Any]) -> None:
    whole = plain.client.post("/invocations", json=body)
    assert whole.status_code == 200, whole.text
    assert text_of(whole.json()).strip() == by_name("ping").answer
    streamed = plain.client.post("/invocations", json={**body, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *events, end = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert end == "[DONE]"
    assert len(events) > 2  # tokens of steps that are there already are sent together
    assert "".join(text_of(json.loads(event)) for event in events) == text_of(whole.json())


def test_inputs(plain: ServeProcess) -> None:
    reply = plain.client.post("/invocations", json=INPUTS)
    assert reply.json()["generated_text"].strip() == by_name("ping").answer


@pytest.mark.parametrize("body", [{**CHAT, "n": 2, "temperature": 1}, {**COMPLETION, "logprobs": 1}])
def test_more_than_plain_text_is_answered_or_refused(plain: ServeProcess, body: dict[str, Any]) -> None:
    reply = plain.client.post("/invocations", json=body)
    if reply.status_code != 200:
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_field"), reply.text


@pytest.mark.parametrize("ids", [[1, 10**6], [-1], [2**40]])
def test_a_wrong_token_id_is_a_400(plain: ServeProcess, ids: list[int]) -> None:
    assert plain.client.post("/invocations", json={**COMPLETION, "prompt": ids}).status_code == 400
    assert plain.client.get("/ping").status_code == 200
