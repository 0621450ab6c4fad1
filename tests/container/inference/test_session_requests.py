"""Sessions over the routes: headers and bodies as SageMaker sends them."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from werkzeug.test import Client, TestResponse

from container.service import Service
from tests.container.http_client import connections_of, http_client
from tests.container.raw_http import request
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.waiting import eventually

SESSION = "X-Amzn-SageMaker-Session-Id"
NEW = "X-Amzn-SageMaker-New-Session-Id"
CLOSED = "X-Amzn-SageMaker-Closed-Session-Id"


@pytest.fixture
def open_service(service: Service, engine: ScriptedEngine) -> Service:
    config = replace(service.config, enable_sessions=True, max_sessions=2)
    open_service = Service.of(config, service.lifecycle, engine.loop)
    open_service.engine = engine  # type: ignore[assignment]  # a stand-in
    return open_service


@pytest.fixture
def client(open_service: Service) -> Client:
    return http_client(open_service)


def begin(client: Client) -> str:
    reply = client.post("/invocations", json={"requestType": "NEW_SESSION"}, headers={SESSION: "NEW_SESSION"})
    assert reply.status_code == 200
    identity, _, expires = reply.headers[NEW].partition("; Expires=")
    assert expires.endswith("Z")
    assert len(expires) == len("2026-01-01T00:00:00Z")
    return identity


def ask(client: Client, session: str) -> int:
    return client.post("/invocations", json={"prompt": "a"}, headers={SESSION: session}, buffered=True).status_code


def test_a_session_is_begun_used_and_closed(client: Client) -> None:
    identity = begin(client)
    assert ask(client, identity) == 200
    reply = client.post("/invocations", json={"requestType": "CLOSE"}, headers={SESSION: identity})
    assert (reply.status_code, reply.headers[CLOSED]) == (200, identity)
    assert client.post("/invocations", json={"requestType": "CLOSE"}, headers={SESSION: identity}).status_code == 400
    assert ask(client, identity) == 400


def test_lines_are_of_a_session_as_one_body_is(client: Client) -> None:
    def lines(session: str) -> TestResponse:
        headers, kind = {SESSION: session}, "application/jsonlines"
        return client.post("/invocations", data='{"prompt": "a"}', content_type=kind, headers=headers, buffered=True)

    assert lines("nobody's").status_code == 400
    reply = lines("NEW_SESSION")
    assert reply.status_code == 200
    assert lines(reply.headers[NEW].partition(";")[0]).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_the_first_question_may_begin_it(client: Client, stream: bool) -> None:
    body = {"prompt": "a", "stream": stream}
    reply = client.post("/invocations", json=body, headers={SESSION: "NEW_SESSION"}, buffered=True)
    assert reply.status_code == 200
    assert ask(client, reply.headers[NEW].partition(";")[0]) == 200


def test_a_question_that_is_refused_begins_none(client: Client, open_service: Service) -> None:
    for _ in range(3):
        reply = client.post(
            "/invocations", json={"prompt": "a", "temperature": "hot"}, headers={SESSION: "NEW_SESSION"}
        )
        assert reply.status_code == 400
        assert NEW not in reply.headers
    assert open_service.sessions is not None
    assert len(open_service.sessions) == 0


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_session_whose_client_leaves_before_the_reply_is_closed(
    open_service: Service, engine: ScriptedEngine, stream: bool, lines: bool
) -> None:
    assert open_service.sessions is not None
    kind = "application/jsonlines" if lines else "application/json"
    body = {"prompt": "<hold>", **({} if lines else {"stream": stream})}
    sent = request("/invocations", body, headers=f"{SESSION}: NEW_SESSION\r\n").replace(
        b"application/json", kind.encode()
    )
    server, client = socket.socketpair()
    with client:
        open_service.loop.call(connections_of(open_service).take, server)
        client.sendall(sent)
        eventually(lambda: engine.begun == 1)
        assert len(open_service.sessions) == 1
    eventually(lambda: open_service.admission.count == 0)
    assert len(open_service.sessions) == 0


def test_what_is_wrong_with_a_session_is_said(client: Client, open_service: Service) -> None:
    assert ask(client, "nobody") == 400
    for body in ({"requestType": "RENEW"}, {"requestType": 3}, {"requestType": "CLOSE"}):
        assert client.post("/invocations", json=body).status_code == 400
    beside = client.post("/invocations", json={"prompt": "a", "requestType": "CLOSE"})
    assert (beside.status_code, beside.get_json()["error"]["param"]) == (400, "requestType")
    begin(client)
    begin(client)
    reply = client.post("/invocations", json={"requestType": "NEW_SESSION"})
    assert reply.status_code == 429
    assert int(reply.headers["Retry-After"]) > 1000
    eventually(lambda: open_service.admission.count == 0)


def test_they_are_off_unless_asked_for(service: Service) -> None:
    client = http_client(service)
    reply = client.post("/invocations", json={"requestType": "NEW_SESSION"}, headers={SESSION: "NEW_SESSION"})
    assert reply.status_code == 400
    assert reply.json is not None
    assert "ENDPOINT_ENABLE_SESSIONS" in reply.json["error"]["message"]
    for kind, says in (("NEW_SESSION", "ENDPOINT_ENABLE_SESSIONS"), ("NEW", "must be NEW_SESSION or CLOSE")):
        error = client.post("/invocations", json={"requestType": kind}).get_json()["error"]
        assert error["param"] == "requestType"
        assert says in error["message"]
    assert ask(client, "anything") == 400


@pytest.mark.parametrize("stream", [False, True])
def test_a_session_of_a_request_that_fails_is_closed_because_its_client_does_not_learn_its_id(
    client: Client, open_service: Service, stream: bool
) -> None:
    for _ in range(3):  # there may be two
        body = {"prompt": "<fail>", "stream": stream}
        reply = client.post("/invocations", json=body, headers={SESSION: "NEW_SESSION"}, buffered=True)
        assert (reply.status_code, NEW in reply.headers) == (500, False)
    assert open_service.sessions is not None
    assert len(open_service.sessions) == 0
