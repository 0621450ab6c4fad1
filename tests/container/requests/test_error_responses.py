"""Every way a request can go wrong before a token is made, through the whole application."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import Client, TestResponse

from container.http import connection
from container.service import Service
from tests.container.http_client import http_client
from tests.container.scripted_engine import CONTEXT, MAX_BODY, PLACES, ScriptedEngine
from tests.handler.waiting import eventually

JSON = {"Content-Type": "application/json"}
POSTS = ("/invocations", "/v1/chat/completions", "/v1/completions")


def error_of(reply: TestResponse, status: int) -> dict[str, Any]:
    """The error object of a reply that must be one, and must tell a stranger nothing of our inside."""
    assert reply.status_code == status, reply.data
    assert reply.content_type == "application/json"
    document = json.loads(reply.data)
    assert list(document) == ["error"]
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    tells_nothing(reply)
    return error


def tells_nothing(reply: TestResponse) -> None:
    text = reply.get_data(as_text=True)
    assert "Traceback" not in text
    assert not re.search(r"\.py\b|/site-packages|/home/|/root/|/work/|File \"", text), text


@pytest.mark.parametrize("path", ["/", "/nothing", "/v1", "/invocations/x", "/static/x", "/../etc/passwd"])
def test_an_unknown_path(client: Client, path: str) -> None:
    error = error_of(client.post(path), 404)
    assert error["code"] == "not_found"
    assert "POST /invocations" in error["message"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", post) for post in POSTS] + [("POST", "/ping"), ("PUT", "/v1/models")]
)
def test_a_wrong_method_names_the_right_one(client: Client, method: str, path: str) -> None:
    reply = client.open(path, method=method)
    for text in (reply.headers["Allow"], error_of(reply, 405)["message"]):
        assert ("POST" if method == "GET" else "GET") in text


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"])
def test_a_body_that_is_not_json_by_its_own_account(client: Client, path: str, kind: str) -> None:
    error = error_of(client.post(path, data=b"{}", headers={"Content-Type": kind} if kind else {}), 415)
    assert error["param"] == "Content-Type"
    assert "application/json" in error["message"]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json"]
)
def test_json_by_any_of_its_names(client: Client, kind: str) -> None:
    reply = client.post("/invocations", data=b'{"prompt": "a"}', headers={"Content-Type": kind})
    assert reply.status_code == 200


def test_another_charset(client: Client) -> None:
    reply = client.post("/invocations", data=b"{}", headers={"Content-Type": "application/json; charset=latin-1"})
    assert "charset" in error_of(reply, 400)["message"]


def test_a_body_that_is_too_large_names_the_limit(client: Client) -> None:
    reply = client.post("/invocations", data=b" " * (MAX_BODY + 1), headers=JSON)
    assert f"{MAX_BODY:,}" in error_of(reply, 413)["message"]
    just = json.dumps({"prompt": "a"}).encode().ljust(MAX_BODY)
    assert client.post("/invocations", data=just, headers=JSON).status_code == 200


SHORT: dict[str, Any] = {
    "data": b'{"prompt": "a"}',
    "environ_overrides": {"CONTENT_LENGTH": "100"},
    "headers": JSON,
}


def test_a_body_that_ends_early(service: Service) -> None:
    reply = http_client(service, half_closes=True).post("/invocations", **SHORT)
    assert "it ended early" in error_of(reply, 400)["message"]
    eventually(lambda: service.admission.count == 0)


@pytest.mark.parametrize(
    ("path", "data", "param", "code"),
    [
        ("/invocations", b"", None, "invalid_body"),
        ("/invocations", b"[]", None, "invalid_body"),
        ("/invocations", b'{"a": NaN}', None, "invalid_body"),
        ("/invocations", b"[" * 3900, None, "invalid_body"),
        ("/invocations", b"{}", "messages", "missing_field"),
        ("/v1/chat/completions", b'{"prompt": "a"}', "messages", "missing_field"),
        ("/v1/completions", b'{"messages": []}', "prompt", "missing_field"),
        ("/invocations", b'{"prompt": "a", "temperature": -1}', "temperature", "invalid_value"),
        ("/invocations", b'{"prompt": "a", "max_token": 1}', "max_token", "unknown_field"),
        ("/invocations", b'{"prompt": "a", "best_of": 5}', "best_of", "unsupported_field"),
        ("/invocations", b'{"prompt": "a", "max_tokens": 999999}', "max_tokens", "context_length_exceeded"),
        ("/invocations", b'{"prompt": "%b"}' % (b"a" * CONTEXT), "prompt", "context_length_exceeded"),
        ("/invocations", b'{"prompt": "<refuse>"}', "prompt", "invalid_value"),
        ("/invocations", b'{"prompt": "<refuse>", "stream": true}', "prompt", "invalid_value"),
    ],
)
def test_what_the_caller_can_mend_names_the_field(
    client: Client, service: Service, path: str, data: bytes, param: str | None, code: str
) -> None:
    error = error_of(client.post(path, data=data, headers=JSON), 400)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    eventually(lambda: service.admission.count == 0)


def test_another_model_is_not_found(client: Client) -> None:
    error = error_of(client.post("/v1/completions", json={"prompt": "a", "model": "other"}), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'scripted'" in error["message"]


def test_a_full_endpoint_says_when_to_come_back(client: Client, service: Service) -> None:
    for _ in range(PLACES):
        service.admission.enter()
    reply = client.post("/invocations", json={"prompt": "a"})
    assert error_of(reply, 429)["type"] == "rate_limit_error"
    assert int(reply.headers["Retry-After"]) >= 1
    assert client.get("/ping").status_code == 200, "a full endpoint is healthy"
    service.admission.leave()
    assert client.post("/invocations", json={"prompt": "a"}).status_code == 200
    eventually(lambda: service.admission.count == PLACES - 1)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/"])
def test_messages_have_the_types_of_anthropics_errors(client: Client, service: Service, path: str) -> None:
    """Anthropic's API reference, "Errors"."""

    def kind(**body: Any) -> tuple[int, str]:
        reply = client.post(path, **body)
        assert reply.json is not None
        assert reply.json["type"] == "error"
        return reply.status_code, reply.json["error"]["type"]

    body = {"model": "scripted", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}
    assert kind(data=b" " * (MAX_BODY + 1), headers=JSON) == (413, "request_too_large")
    assert kind(json={**body, "model": "other"}) == (404, "not_found_error")
    for _ in range(PLACES):
        service.admission.enter()
    assert kind(json=body) == (429, "rate_limit_error")
    for _ in range(PLACES):
        service.admission.leave()
    service.lifecycle.drain()
    assert kind(json=body) == (503, "overloaded_error")


MESSAGE: dict[str, Any] = {"anthropic_version": "x", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize("path", ["/invocations", "/v1/messages/"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{"max_tokens": None}, {"messages": [{"role": "user", "content": "<refuse>"}]}])
def test_a_message_has_them_wherever_it_comes(client: Client, path: str, stream: bool, fields: dict[str, Any]) -> None:
    reply = client.post(path, json={**MESSAGE, "stream": stream, **fields})
    assert reply.json is not None
    assert (reply.status_code, reply.json["type"]) == (400, "error")


def test_a_line_has_the_errors_of_its_own_api(client: Client) -> None:
    refused = [{"role": "user", "content": "<refuse>"}]
    bodies = [{**MESSAGE, "max_tokens": None}, {"messages": []}, {**MESSAGE, "messages": refused}]
    lines = b"\n".join(json.dumps(body).encode() for body in bodies)
    reply = client.post("/invocations", data=lines, headers={"Content-Type": "application/jsonlines"})
    assert [json.loads(line).get("type") for line in reply.data.splitlines()] == ["error", None, "error"]


@pytest.mark.parametrize("path", POSTS)
def test_before_it_is_ready_it_says_so_with_the_stage(service: Service, path: str) -> None:
    starting = Service.of(service.config, loop=service.loop)
    starting.lifecycle.stage("start engine")
    reply = http_client(starting).post(path, json={"prompt": "a"})
    error = error_of(reply, 503)
    assert error["code"] == "starting"
    assert "start engine" in error["message"]
    assert int(reply.headers["Retry-After"]) >= 1
    assert http_client(starting).get("/v1/models").status_code == 503


def test_while_it_drains(client: Client, service: Service) -> None:
    service.lifecycle.drain()
    reply = client.post("/invocations", json={"prompt": "a"})
    assert error_of(reply, 503)["code"] == "draining"
    assert "Retry-After" in reply.headers


def test_when_it_has_failed(client: Client, service: Service) -> None:
    service.lifecycle.fail("its process ended")
    error = error_of(client.post("/invocations", json={"prompt": "a"}), 503)
    assert error["code"] == "engine_failed"
    assert "its process ended" in error["message"]


def test_a_start_that_failed_tells_the_operator_and_not_the_client(service: Service) -> None:
    failed = Service.of(service.config, loop=service.loop)
    failed.lifecycle.fail("OSError: /root/.cache/model.py: no such file")
    reply = http_client(failed).post("/invocations", json={"prompt": "a"})
    assert "replaced" not in error_of(reply, 503)["message"]


def test_a_view_that_raises_says_nothing_of_it_to_the_client_and_all_to_the_log(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object, **options: object) -> object:
        raise RuntimeError("secret detail at /root/x.py")

    monkeypatch.setattr(type(service.engine.prompts), "text", broken)  # type: ignore[union-attr]
    with caplog.at_level(logging.ERROR):
        error = error_of(client.post("/v1/completions", json={"prompt": "a"}), 500)
    assert "secret" not in error["message"]
    assert "secret detail" in caplog.text
    eventually(lambda: service.admission.count == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_an_unexpected_error_while_the_reply_is_made_is_an_error_object_too(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def broken(*arguments: object) -> object:
        raise RuntimeError("secret")

    monkeypatch.setattr(service.engine, "request", broken)
    error_of(client.post("/v1/completions", json={"prompt": "a", "stream": stream}), 500)


def test_a_body_that_does_not_arrive(client: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ARRIVAL_SECONDS", 0.07)
    reply = client.post("/invocations", **SHORT)
    assert "0.07 s" in error_of(reply, 408)["message"]
    eventually(lambda: service.admission.count == 0)


METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(METHODS),
    path=st.text(alphabet="/pingvocatis1.%2é ?\\", max_size=20),
    data=st.binary(max_size=30),
)
def test_whatever_is_sent_is_answered_with_json(
    client: Client, service: Service, method: str, path: str, data: bytes
) -> None:
    path = "/" + path.lstrip("/")
    reply = client.open(path, method=method, data=data, headers=JSON)
    if reply.status_code >= 400:
        error_of(reply, reply.status_code)
    assert reply.status_code < 500
    eventually(lambda: service.admission.count == 0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "//invocations", 200),
        ("POST", "///v1/completions/", 200),
        ("POST", "/%69nvocations?x=1", 200),
        ("POST", "http://localhost/invocations", 200),
        ("POST", "/invocations;x", 404),
        ("GET", "//ping", 200),
        ("GET", "/ping/", 200),
        ("GET", "/v1//models", 404),
    ],
)
def test_other_spellings_of_a_path_are_no_redirect(client: Client, method: str, path: str, status: int) -> None:
    reply = client.open("/", method=method, json={"prompt": "a"}, environ_overrides={"REQUEST_URI": path})
    assert reply.status_code == 200 == status or error_of(reply, status)


def test_a_wish_for_another_protocol_is_an_error(client: Client) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert "WebSocket" in error_of(client.get("/v1/models", headers=upgrade), 400)["message"]
    assert (
        client.post("/invocations", json={"prompt": "a"}, headers=upgrade).status_code == 200
    )  # no handshake has a body


# /ping, /v1/models, /metrics


def ping_of(service: Service) -> tuple[int, dict[str, Any]]:
    reply = http_client(service).get("/ping")
    tells_nothing(reply)
    return reply.status_code, json.loads(reply.data or b"{}")


def test_ping_while_it_starts_tells_the_stage_and_its_progress(service: Service) -> None:
    starting = Service.of(service.config, loop=service.loop)
    assert ping_of(starting)[0] == 503
    starting.lifecycle.stage("fetch model")
    status, body = ping_of(starting)
    assert (status, body["status"], body["stage"]) == (503, "starting", "fetch model")
    assert "progress" not in body
    starting.lifecycle.progress(5, 10, 2.6)
    _, body = ping_of(starting)
    assert body["progress"] == {"done_bytes": 5, "total_bytes": 10, "bytes_per_second": 3}
    assert body["seconds"] >= body["stage_seconds"] >= 0


def test_ping_when_ready_is_200_and_empty(client: Client) -> None:
    reply = client.get("/ping")
    assert (reply.status_code, reply.data) == (200, b"")
    assert client.head("/ping").status_code == 200


def test_ping_while_it_drains_and_after_it_failed(service: Service) -> None:
    service.lifecycle.drain()
    assert ping_of(service)[0] == 503
    service.lifecycle.fail("its process ended")
    status, body = ping_of(service)
    assert (status, body["status"], body["reason"]) == (500, "failed", "its process ended")


def test_ping_sees_an_engine_that_is_dead_or_stalled_before_the_watch_does(
    service: Service, engine: ScriptedEngine
) -> None:
    engine.silent = 7.0
    status, body = ping_of(service)
    assert (status, body["status"]) == (500, "stalled")
    assert "7 s" in body["reason"]
    engine.silent = 0.0
    assert ping_of(service)[0] == 200, "a stall that is over is healthy again"
    engine.is_dead = True
    status, body = ping_of(service)
    assert (status, body["status"]) == (500, "failed")


def test_the_models(client: Client) -> None:
    listed = json.loads(client.get("/v1/models").data)
    assert [model["id"] for model in listed["data"]] == ["scripted"]
    assert listed["data"][0]["max_model_len"] == CONTEXT
    assert json.loads(client.get("/v1/models/scripted").data) == listed["data"][0]
    assert client.get("/v1/models/scripted/x").status_code == 404


def test_metrics_tell_what_is_in_flight(client: Client, service: Service) -> None:
    service.admission.enter()
    text = client.get("/metrics").get_data(as_text=True)
    assert re.search(r"^endpoint_requests_in_flight 1(\.0)?$", text, re.MULTILINE)
    assert re.search(r"^endpoint_ready 1(\.0)?$", text, re.MULTILINE)
    service.admission.leave()
    service.lifecycle.drain()
    text = client.get("/metrics").get_data(as_text=True)
    assert re.search(r"^endpoint_requests_in_flight 0(\.0)?$", text, re.MULTILINE)
    assert re.search(r"^endpoint_ready 0(\.0)?$", text, re.MULTILINE)
