"""JSON Lines in, JSON Lines out, in order, with an error line for a bad one; and what an asynchronous reply is."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from werkzeug.test import Client, TestResponse

from container.service import Service
from handler.engine.engine_request import EngineRequest
from handler.errors import EngineFailed
from handler.schemas import batch
from handler.schemas.tgi_lmi.inputs_reply import InputsReply, ListReply
from tests.container.http_client import broken_body, http_client
from tests.container.scripted_engine import SLOTS, ScriptedEngine
from tests.handler.scripted_tokenizer import text_of
from tests.handler.waiting import WITHIN, eventually

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def post(client: Client, lines: list[str], kind: str = "application/jsonlines", **headers: str) -> TestResponse:
    body = "\n".join(lines).encode()
    return client.post("/invocations", data=body, content_type=kind, headers=headers, buffered=True)


def line(prompt: str, **fields: Any) -> str:
    return json.dumps({"prompt": prompt, **fields})


def replies(response: TestResponse) -> list[str]:
    """The text of each line, or its error's code."""
    assert response.status_code == 200, response.data
    assert response.content_type == "application/jsonlines"
    assert int(response.headers["Content-Length"]) == len(response.data)
    *lines, end = response.data.split(b"\n")
    assert end == b""
    found = [json.loads(one) for one in lines]
    return [one["choices"][0]["text"] if "choices" in one else one["error"]["code"] for one in found]


@pytest.mark.parametrize(
    "kind", ["application/jsonlines", "application/x-ndjson", "application/jsonlines; charset=utf-8"]
)
def test_replies_come_in_the_order_of_their_lines(client: Client, kind: str) -> None:
    assert replies(post(client, [line("a|b"), line("c"), line("d|e|f"), line("g")], kind)) == ["ab", "c", "def", "g"]


def test_order_holds_when_a_later_line_ends_first(client: Client, engine: ScriptedEngine) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, [line("<gate:first>|a"), line("b")])
        eventually(lambda: engine.begun == 2 and engine.unfinished() == 1)
        engine.open("first")
        assert replies(running.result(WITHIN)) == ["a", "b"]


def test_one_bad_line_gives_one_error_line(client: Client) -> None:
    lines = [line("a"), '{"prompt": ', line("b", temperature="hot"), "", line("<refuse>"), line("c|<fail>"), line("d")]
    expected = ["a", "invalid_body", "invalid_value", "invalid_body", "invalid_value", "generation_failed", "d"]
    assert replies(post(client, lines)) == expected


def test_a_line_that_cannot_begin_gives_one_error_line(
    client: Client, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = EngineRequest.begin

    def begin_or_raise(self: EngineRequest, *limits: Any) -> None:
        if text_of(self._generation.prompt) == "b":
            raise RuntimeError("a bug")
        begin(self, *limits)

    monkeypatch.setattr(EngineRequest, "begin", begin_or_raise)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, [line("a"), line("b"), line("c")])
        try:
            assert replies(running.result(WITHIN)) == ["a", "internal_error", "c"]
        finally:
            if not running.done():
                engine.fail_requests(EngineFailed("the test is over"))


def test_a_line_cannot_stream(client: Client) -> None:
    assert replies(post(client, [line("a", stream=True), line("b")])) == ["invalid_value", "b"]


def test_lines_may_be_of_different_kinds_and_end_as_windows_ends_them(client: Client) -> None:
    lines = [json.dumps({"inputs": "a"}) + "\r", line("b") + "\r", ""]
    first, second = post(client, lines).data.splitlines()
    assert json.loads(first)["generated_text"] == "a"
    assert json.loads(second)["choices"][0]["text"] == "b"


@pytest.mark.parametrize("lines", [[], ["  "]])
def test_no_lines_are_an_error_of_the_whole(client: Client, lines: list[str]) -> None:
    assert post(client, lines).status_code == 400


def test_only_a_transform_job_has_any_number_of_lines(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_LINES", 2)
    lines = [line("a"), line("b"), line("c"), line("d")]
    refused = post(http_client(service), lines)
    assert refused.status_code == 400
    assert "more than 2 lines. Send fewer lines in each body." in refused.text
    service.config = replace(service.config, batch_transform=True)
    answered = post(http_client(service), lines)
    assert [json.loads(reply)["choices"][0]["text"] for reply in answered.data.splitlines()] == ["a", "b", "c", "d"]


def test_the_replies_to_all_lines_have_a_bound(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = len(post(client, [line("a")]).data)
    monkeypatch.setattr(batch, "MAX_REPLY_BYTES", 3 * first)
    answered = replies(post(client, [line("a") for _ in range(9)]))
    assert answered[:2] == ["a", "a"]
    assert answered[-1] == "invalid_request"


def test_an_error_of_a_message_has_the_form_of_its_api(client: Client) -> None:
    message = {"anthropic_version": "x", "messages": [{"role": "user", "content": "a"}]}
    for fields in ({"max_tokens": 5, "stream": True}, {"max_tokens": 10_000_000}):
        (error,) = post(client, [json.dumps({**message, **fields})]).data.splitlines()
        assert json.loads(error)["type"] == "error"


def test_no_more_lines_are_in_the_engine_than_it_has_slots(client: Client, engine: ScriptedEngine) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, [line("<gate:all>|a")] * (SLOTS * 3))
        eventually(lambda: engine.unfinished() == SLOTS)
        assert engine.begun == SLOTS
        engine.open("all")
        assert replies(running.result(WITHIN)) == ["a"] * (SLOTS * 3)


def test_lines_that_are_late_say_so_and_those_that_are_done_are_kept(service: Service, engine: ScriptedEngine) -> None:
    service.config = replace(service.config, deadline=0.3)
    client = http_client(service)
    lines = [line("a"), *[line("<hold>")] * (SLOTS + 2)]
    assert replies(post(client, lines)) == ["a", *["deadline_exceeded"] * (SLOTS + 2)]
    assert engine.begun >= SLOTS + 1
    eventually(lambda: engine.cancelled == engine.begun - 1)


def test_an_engine_that_dies_ends_the_whole_batch(client: Client, engine: ScriptedEngine) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, [line("a"), line("<hold>"), line("<hold>"), line("b")])
        eventually(lambda: engine.unfinished() == 2)
        engine.fail_requests(EngineFailed("its process ended"))
        response = running.result(WITHIN)
    assert response.status_code == 503
    assert json.loads(response.data)["error"]["code"] == "engine_failed"


@pytest.mark.parametrize(("slots", "multimodal", "expected"), [(SLOTS, False, (SLOTS, 6)), (64, True, (16, 6))])
def test_execution_parameters(
    service: Service, engine: ScriptedEngine, slots: int, multimodal: bool, expected: tuple[int, int]
) -> None:
    service.config = replace(service.config, max_concurrent=64)
    engine.slots, engine.traits = slots, replace(engine.traits, multimodal=multimodal)
    concurrent, payload = expected
    assert http_client(service).get("/execution-parameters").json == {
        "MaxConcurrentTransforms": concurrent,
        "BatchStrategy": "SINGLE_RECORD",
        "MaxPayloadInMB": payload,
    }


@pytest.mark.parametrize("setting", ["asynchronous", "batch_transform"])
def test_what_would_stream_has_a_length_where_sagemaker_wants_one(service: Service, setting: str) -> None:
    settings: dict[str, Any] = {setting: True}
    service.config = replace(service.config, **settings)
    client = http_client(service)
    reply = client.post("/invocations", json={"prompt": "a|b", "stream": True}, buffered=True)
    assert int(reply.headers["Content-Length"]) == len(reply.data)
    assert reply.content_type.startswith("text/event-stream")
    assert reply.data.endswith(b"data: [DONE]\n\n")
    failed = client.post("/invocations", json={"prompt": "a|<fail>", "stream": True}, buffered=True)
    assert failed.status_code == 500
    assert b"data:" not in failed.data


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_late_before_its_first_token_gets_504(
    service: Service, engine: ScriptedEngine, stream: bool
) -> None:
    service.config = replace(service.config, deadline=0.05, stream_deadline=0.05)
    client = http_client(service)
    reply = client.post("/invocations", json={"prompt": "<hold>", "stream": stream}, buffered=True)
    assert reply.status_code == 504
    assert json.loads(reply.data)["error"]["code"] == "deadline_exceeded"
    eventually(lambda: engine.cancelled == 1)


def test_a_stream_that_is_late_ends_with_an_event_that_says_so(service: Service, engine: ScriptedEngine) -> None:
    for deadline in (0.2, 2, 20):  # on a busy machine the first token may be late, too
        service.config = replace(service.config, stream_deadline=deadline)
        client = http_client(service)
        reply = client.post("/invocations", json={"prompt": "a|<hold>", "stream": True})
        if reply.status_code != 504:
            break
        engine.cancelled = 0
    assert reply.status_code == 200
    data = broken_body(reply)
    assert b'"code":"deadline_exceeded"' in data
    assert b"[DONE]" not in data
    eventually(lambda: engine.cancelled == 1)


@pytest.mark.parametrize(("body", "apart"), [({"inputs": "a"}, False), ({"inputs": ["a", "b"]}, True)])
def test_a_large_reply_is_not_made_on_the_loop(
    client: Client, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], apart: bool
) -> None:
    """Of a line, as of a body: it may have several sequences with log probabilities."""
    made: list[bool] = []
    for kind in (InputsReply, ListReply):
        whole = kind.whole

        def watched(*arguments: Any, whole: Any = whole) -> bytes:
            made.append(threading.current_thread() is not engine.loop.thread)
            return cast(bytes, whole(*arguments))

        monkeypatch.setattr(kind, "whole", watched)
    assert post(client, [json.dumps(body)]).status_code == 200
    assert client.post("/invocations", json=body).status_code == 200
    assert made == [apart] * 2


def test_lines_of_an_endpoint_whose_replies_are_streams_are_answered_whole(
    service: Service, engine: ScriptedEngine
) -> None:
    streams = Service.of(replace(service.config, output_formatter="jsonlines"), service.lifecycle, engine.loop)
    streams.engine = engine  # type: ignore[assignment]  # a stand-in
    client = http_client(streams)
    reply = post(client, ['{"inputs": "a|b"}', '{"inputs": ["a", "b"]}'])
    assert [json.loads(line) for line in reply.data.splitlines()] == [
        {"generated_text": "ab"},
        [{"generated_text": "a"}, {"generated_text": "b"}],
    ]
    whole = client.post("/invocations", json={"inputs": ["a", "b"]}, buffered=True)
    assert whole.get_json() == [{"generated_text": "a"}, {"generated_text": "b"}]
