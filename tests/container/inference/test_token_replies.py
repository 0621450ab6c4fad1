"""Tokens through the whole application: whole replies and streams, and every end that they may have."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from container.service import Service
from handler.errors import EngineFailed
from tests.container.http_client import broken_body
from tests.container.scripted_engine import PLACES, ScriptedEngine
from tests.handler.waiting import WITHIN, eventually

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def post(client: Client, path: str, body: dict[str, Any]) -> TestResponse:
    """Reads the reply to its end."""
    return client.post(path, json=body, buffered=True)


def events_in(data: bytes) -> list[Any]:
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    return [line if "[DONE]" in line else json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/completions", {"prompt": "a|b|c"}, lambda reply: reply["choices"][0]["text"]),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a|b|c"}]},
            lambda reply: reply["choices"][0]["message"]["content"],
        ),
        ("/invocations", {"inputs": "a|b|c"}, lambda reply: reply["generated_text"]),
        ("/invocations", {"prompt": "a|b|c"}, lambda reply: reply["choices"][0]["text"]),
    ],
)
def test_a_whole_reply(client: Client, path: str, body: dict[str, Any], text: Any) -> None:
    reply = post(client, path, body)
    assert reply.status_code == 200
    assert reply.content_type == "application/json"
    assert int(reply.headers["Content-Length"]) == len(reply.data)
    assert text(json.loads(reply.data)) == "abc"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a|b|c"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a|b|c"}]}),
        ("/invocations", {"inputs": "a|b|c", "parameters": {"output_formatter": "sse"}}),
    ],
)
def test_a_stream(client: Client, path: str, body: dict[str, Any]) -> None:
    reply = post(client, path, {**body, "stream": True})
    assert reply.status_code == 200
    assert reply.content_type.startswith("text/event-stream")
    assert reply.headers["Cache-Control"] == "no-cache"
    assert "Content-Length" not in reply.headers
    *_, last = events_in(reply.data)
    if path == "/invocations":
        assert last["generated_text"] == "abc"
    else:
        assert last == "data: [DONE]"
        assert reply.data.count(b"[DONE]") == 1


def test_a_stream_comes_as_it_is_made(client: Client, engine: ScriptedEngine, service: Service) -> None:
    reply = client.post("/v1/completions", json={"prompt": "a|<gate:next>|b", "stream": True}, buffered=False)
    parts = reply.iter_encoded()
    assert b'"a"' in next(parts)
    assert service.admission.count == 1, "its place is held until its last byte"
    engine.open("next")
    rest = b"".join(parts)
    assert b'"b"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    reply.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("script", "status"), [("<fail>", 500), ("<abort>", 500), ("<refuse>", 400)])
def test_an_error_before_the_first_token_has_a_real_status(
    client: Client, script: str, status: int, stream: bool
) -> None:
    reply = post(client, "/v1/completions", {"prompt": script, "stream": stream})
    assert reply.status_code == status
    assert reply.content_type == "application/json"
    assert json.loads(reply.data)["error"]["message"]


def test_a_whole_reply_that_fails_midway_is_an_error_and_no_half_answer(client: Client) -> None:
    reply = post(client, "/v1/completions", {"prompt": "a|b|<fail>"})
    assert reply.status_code == 500
    assert "choices" not in json.loads(reply.data)


@pytest.mark.parametrize("command", ["<fail>", "<abort>"])
@pytest.mark.parametrize("body", [{"prompt": "a|b|"}, {"inputs": "a|b|"}])
@pytest.mark.parametrize("accept", ["text/event-stream", "application/jsonlines"])
def test_an_error_midway_is_a_last_event_and_no_end_mark(
    client: Client, body: dict[str, str], command: str, accept: str
) -> None:
    (key, script), *_ = body.items()
    body_with_stream = {key: script + command, "stream": True}
    reply = client.post("/invocations", json=body_with_stream, headers={"Accept": accept})
    assert reply.status_code == 200
    assert reply.mimetype == accept
    data = broken_body(reply)
    in_lines = accept == "application/jsonlines"
    *tokens, last = [json.loads(line) for line in data.splitlines()] if in_lines else events_in(data)
    assert len(tokens) == 2
    assert last["error"]["code"] == "generation_failed"
    assert b"[DONE]" not in data


@pytest.mark.parametrize(
    ("accept", "framing"),
    [
        ("text/event-stream; charset=utf-8", "text/event-stream"),  # as a reply of this container has it
        ("Text/Event-Stream", "text/event-stream"),
        ("application/jsonlines;q=0.5, text/event-stream;q=0", "application/jsonlines"),
    ],
)
@pytest.mark.parametrize("body", [{"prompt": "a|b"}, {"inputs": "a|b"}])
def test_the_framing_is_the_accepted_one(client: Client, body: dict[str, str], accept: str, framing: str) -> None:
    reply = client.post("/invocations", json={**body, "stream": True}, headers={"Accept": accept})
    assert (reply.status_code, reply.mimetype) == (200, framing)


@pytest.mark.parametrize("read", [True, False])
def test_closing_early_cancels(client: Client, engine: ScriptedEngine, service: Service, read: bool) -> None:
    reply = client.post("/v1/completions", json={"prompt": "a|<hold>", "stream": True}, buffered=False)
    assert not read or b'"a"' in next(iter(reply.response))
    assert engine.cancelled == 0
    reply.close()
    reply.close()
    eventually(lambda: engine.cancelled == 1)
    eventually(lambda: service.admission.count == 0)


def test_a_stream_read_to_its_end_cancels_nothing(client: Client, engine: ScriptedEngine) -> None:
    reply = post(client, "/v1/completions", {"prompt": "a|b", "stream": True})
    assert reply.data
    assert (engine.begun, engine.cancelled) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_dies_ends_what_runs(client: Client, engine: ScriptedEngine, stream: bool) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.post, "/v1/completions", json={"prompt": "a|<hold>", "stream": stream})
        eventually(lambda: engine.unfinished() == 1)
        if stream:
            running.result(WITHIN)  # its first event has arrived
        engine.fail_requests(EngineFailed("its process ended"))
        reply = running.result(WITHIN)
    if stream:
        assert events_in(broken_body(reply))[-1]["error"]["code"] == "engine_failed"
    else:
        assert reply.status_code == 503
        assert "Retry-After" in reply.headers


def test_the_reason_of_the_end_is_passed_on(client: Client) -> None:
    reply = post(client, "/v1/completions", {"prompt": "a|<length>"})
    assert json.loads(reply.data)["choices"][0]["finish_reason"] == "length"


def test_as_many_at_once_as_there_are_places_and_one_more_is_told_to_wait(
    client: Client, service: Service, engine: ScriptedEngine
) -> None:
    statuses: list[int] = []
    lock = threading.Lock()

    def request(_: int) -> None:
        status = client.post("/v1/completions", json={"prompt": "<gate:all>|a"}).status_code
        with lock:
            statuses.append(status)

    with ThreadPoolExecutor(PLACES + 3) as pool:
        running = [pool.submit(request, number) for number in range(PLACES + 3)]
        eventually(lambda: statuses.count(429) == 3 and service.admission.count == PLACES)
        engine.open("all")
        for future in running:
            future.result(WITHIN)
    assert sorted(statuses) == [200] * PLACES + [429] * 3


def test_a_list_of_inputs_is_answered_in_order_and_together(client: Client, engine: ScriptedEngine) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, "/invocations", {"inputs": ["a|<gate:first>|b", "c", "d|e"]})
        eventually(lambda: engine.begun == 3 and engine.unfinished() == 1)
        engine.open("first")
        reply = running.result(WITHIN)
    assert [answer["generated_text"] for answer in json.loads(reply.data)] == ["ab", "c", "de"]


def test_one_input_that_fails_is_the_reply_and_frees_the_others(client: Client, engine: ScriptedEngine) -> None:
    reply = post(client, "/invocations", {"inputs": ["a|<hold>", "b|<fail>", "c|<hold>"]})
    assert reply.status_code == 500
    assert json.loads(reply.data)["error"]["code"] == "generation_failed"
    eventually(lambda: engine.cancelled == 2)


def test_one_input_that_the_engine_refuses_begins_none(client: Client, engine: ScriptedEngine) -> None:
    body = {"inputs": ["a", "b"], "parameters": {"max_new_tokens": 5000}}
    assert post(client, "/invocations", body).status_code == 400
    assert engine.begun == 0
