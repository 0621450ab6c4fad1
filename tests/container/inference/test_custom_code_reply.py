"""The owner's code behind the routes: statuses, streams, places, and what it leaves to the endpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from threading import Event
from typing import Any, ClassVar

import pytest
from werkzeug.test import Client

from container.inference import custom_code_reply
from container.recovery.death_log import DeathLog
from container.recovery.recovery import Recovery
from container.recovery.request_channel import RequestChannel
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.asgi_call import Receive, Send, call_application
from handler.custom_code.code_contract import CodeReply, CodeRequest
from handler.custom_code.code_errors import CustomCodeFailed, CustomCodeRefused
from handler.custom_code.engine_model import REQUEST_DEADLINE, EngineModel
from handler.custom_code.hook_caller import HookCaller
from handler.errors import EngineFailed, SettingError
from handler.model.model_source import Model
from handler.sessions.session_store import Sessions
from handler.startup.custom_code_loading import prepared_code
from tests.container.http_client import http_client
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.waiting import eventually

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SESSION, NEW_SESSION = "X-Amzn-SageMaker-Session-Id", "X-Amzn-SageMaker-New-Session-Id"
ANSWERED = {("POST", "/invocations"), ("GET", "/ping"), ("DELETE", "/adapters/one")}


class ScriptedCode:
    """A stand-in for the loaded code: a function of the request."""

    may_decline: ClassVar[bool] = True
    manages_sessions: ClassVar[bool] = False

    def __init__(self, answer: Callable[[CodeRequest], CodeReply | None]) -> None:
        self.invoke = answer

    def answers(self, method: str, path: str) -> bool:
        return (method, path) in ANSWERED


@pytest.fixture
def code(service: Service, engine: ScriptedEngine) -> Iterator[Callable[..., Client]]:
    def with_code(answer: Callable[[CodeRequest], CodeReply | None]) -> Client:
        service.custom_code = ScriptedCode(answer)
        return http_client(service)

    yield with_code
    eventually(lambda: service.admission.count == 0)


def test_its_reply_and_headers(code: Callable[..., Client]) -> None:
    def answer(request: CodeRequest) -> CodeReply:
        assert (request.content_type, request.accept) == ("text/csv; charset=UTF-8", "text/x")
        return CodeReply(request.body[::-1], "text/x", 202, {ATTRIBUTES: "a=1\r\nX-Evil: 2"})

    headers = {"Content-Type": "text/csv; charset=UTF-8", "Accept": "text/x", ATTRIBUTES: "of=the-client"}
    reply = code(answer).post("/invocations", data=b"abc", headers=headers, buffered=True)
    assert (reply.status_code, reply.data, reply.mimetype) == (202, b"cba", "text/x")
    assert reply.headers.getlist(ATTRIBUTES) == ["a=1 X-Evil: 2"]
    assert "X-Evil" not in reply.headers


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        *((status, {}, f"the status {status}") for status in (-1, 0, 100, 999, 201.5, "201", None, True)),
        *((200, {name: "a"}, "the header ") for name in ("", "X A", "X-A:", "X-A\r\nX-Evil")),
        (200, {"X-A": "\u2603"}, "the header 'X-A'"),
        (200, {"X-\xdc": "a"}, "the header 'X-"),
    ],
)
def test_a_reply_that_http_cannot_carry_is_an_error(
    code: Callable[..., Client], status: Any, headers: dict[str, str], words: str
) -> None:
    reply = code(lambda _: CodeReply(b"{}", "application/json", status, headers)).post("/invocations", data=b"{}")
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (500, "invalid_code_reply")
    assert words in reply.get_json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (CustomCodeFailed("predict_fn", ValueError("bad label")), 500, "predict_fn raised ValueError: bad label"),
        (CustomCodeRefused(422, "too many"), 422, "too many"),
        (CustomCodeRefused(200, "an error with a status of success"), 500, "an error with a status of success"),
        (ZeroDivisionError("a label"), 500, "the model's code raised ZeroDivisionError: a label"),
        (SystemExit(3), 500, "the model's code raised SystemExit: 3"),
        (StopIteration(), 500, "the model's code raised StopIteration"),
    ],
)
@pytest.mark.parametrize("when", ["before", "first piece"])
def test_its_errors(code: Callable[..., Client], error: BaseException, status: int, message: str, when: str) -> None:
    def fail() -> Iterator[bytes]:
        raise error
        yield b""

    def answer(request: CodeRequest) -> CodeReply:
        if when == "before":
            raise error
        return CodeReply(fail(), "text/plain")

    client = code(answer)
    for _ in range(2):  # it ends neither the loop nor the server
        reply = client.post("/invocations", json={}, buffered=True)
        assert reply.status_code == status
        said = reply.get_json()["error"]["message"]
        assert said == message or (type(error) is StopIteration and "StopIteration" in said)


def test_headers_of_one_name_are_all_sent(code: Callable[..., Client]) -> None:
    async def application(scope: Any, receive: Receive, send: Send) -> None:
        kinds = [(b"content-type", each) for each in (b"text/plain", b"a/b")]
        cookies = [(b"set-cookie", each) for each in (b"a=1", b"b=2", b"b=2")]
        await send({"type": "http.response.start", "status": 200, "headers": [*kinds, *cookies]})
        await send({"type": "http.response.body", "body": b"x"})

    caller = HookCaller()
    client = code(lambda request: call_application(application, caller, request))
    reply = client.post("/invocations", json={}, buffered=True)
    assert (reply.data, reply.headers.getlist("set-cookie")) == (b"x", ["a=1", "b=2", "b=2"])
    assert reply.headers.getlist("content-type") == ["a/b"]


def test_a_status_may_be_of_the_standard_library(code: Callable[..., Client]) -> None:
    reply = code(lambda _: CodeReply(b"a", "text/plain", HTTPStatus.CREATED)).post("/invocations", data=b"{}")
    assert reply.status_code == 201


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_without_a_body_has_none(code: Callable[..., Client], stream: bool) -> None:
    pieces = iter([b"a", b"b"])
    reply = code(lambda _: CodeReply(pieces if stream else b"ab", "text/plain", 204)).post("/invocations", data=b"{}")
    assert (reply.status_code, reply.data) == (204, b"")


def test_a_stream_holds_its_place_and_ends_with_its_client(code: Callable[..., Client], service: Service) -> None:
    closed = []

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            closed.append(True)

    reply = code(lambda request: CodeReply(pieces(), "text/plain")).post("/invocations", json={}, buffered=False)
    parts = iter(reply.response)
    assert [next(parts), next(parts)] == [b"more", b"more"]
    assert service.admission.count == 1
    reply.close()
    eventually(lambda: closed == [True])
    eventually(lambda: service.admission.count == 0)


def test_an_empty_stream_is_an_empty_reply(code: Callable[..., Client]) -> None:
    reply = code(lambda request: CodeReply(iter(()), "text/plain")).post("/invocations", json={}, buffered=True)
    assert (reply.status_code, reply.data) == (200, b"")


def test_what_it_leaves_is_answered_by_the_endpoint(code: Callable[..., Client]) -> None:
    client = code(lambda request: None)
    assert client.post("/invocations", json={"inputs": "a|b"}, buffered=True).get_json() == {"generated_text": "ab"}
    assert client.post("/invocations", data=b"x", headers={"Content-Type": "text/csv"}).status_code == 415


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/invocations", 200), ("DELETE", "/adapters/one", 501)]
)
def test_what_it_leaves_keeps_its_place(
    code: Callable[..., Client], service: Service, method: str, path: str, status: int
) -> None:
    counted = []

    def decline(request: CodeRequest) -> None:
        counted.append(service.admission.count)
        service.admission.limit = 0  # others have taken all places meanwhile

    assert code(decline).open(path, method=method, json={"inputs": "a"}, buffered=True).status_code == status
    assert counted == [1]  # and the fixture waits until there are none


def test_the_other_routes_are_the_endpoints_own(code: Callable[..., Client]) -> None:
    client = code(lambda request: pytest.fail("asked"))
    assert (
        client.post("/v1/completions", json={"prompt": "a|b"}, buffered=True).get_json()["choices"][0]["text"] == "ab"
    )


def test_without_an_engine_the_other_routes_say_so(code: Callable[..., Client], service: Service) -> None:
    service.engine = None
    client = code(lambda request: CodeReply(b"own", "text/plain"))
    assert client.post("/invocations", json={}, buffered=True).data == b"own"
    assert client.get("/metrics").status_code == 200
    for reply in (client.get("/v1/models"), client.post("/v1/completions", json={"prompt": "a"})):
        assert reply.status_code == 404
        assert "ENDPOINT_ENGINE" in reply.get_json()["error"]["message"]


def test_the_limits_hold_for_it_too(code: Callable[..., Client], service: Service) -> None:
    client = code(lambda request: CodeReply(b"", "text/plain"))
    assert client.post("/invocations", data=b"x" * (service.config.max_body + 1)).status_code == 413
    service.admission.limit = 0
    assert client.post("/invocations", json={}, buffered=True).status_code == 429
    service.lifecycle.drain()
    assert client.post("/invocations", json={}, buffered=True).status_code == 503


def prepared(tmp_path: Any, model: Model | None = None, **settings: Any) -> Any:
    config = EndpointConfig(model=str(tmp_path), **settings)
    return prepared_code(Service.of(config), model or Model(str(tmp_path), ("m",), 1))


def test_a_hub_models_code_is_somebody_elses(tmp_path: Any) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text("")
    assert prepared(tmp_path) is not None
    assert prepared(tmp_path, Model(str(tmp_path), ("org/name",), 0)) is None


def test_without_an_engine_there_has_to_be_code_that_may_run(tmp_path: Any) -> None:
    with pytest.raises(SettingError, match="ENDPOINT_ENGINE"):
        prepared(tmp_path, engine="none")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text("")
    assert prepared(tmp_path, engine="none") is not None
    with pytest.raises(SettingError, match="ENDPOINT_CUSTOM_CODE"):
        prepared(tmp_path, engine="none", custom_code=False)
    (tmp_path / "code" / "requirements.txt").write_text("anything\n")
    with pytest.raises(SettingError, match="network isolation"):
        prepared(tmp_path, engine="none", network_isolation=True, requirements="download")
    assert prepared(tmp_path, engine="none", requirements="none") is not None


def test_a_reply_of_json(code: Callable[..., Client]) -> None:
    client = code(lambda request: CodeReply(json.dumps([1]).encode(), "application/json"))
    assert client.post("/invocations", json={}, buffered=True).get_json() == [1]


def test_an_asynchronous_endpoint_gets_a_stream_whole(code: Callable[..., Client], service: Service) -> None:
    service.config = replace(service.config, asynchronous=True)
    client = code(lambda request: CodeReply(iter([b"a", b"b"]), "text/plain"))
    reply = client.post("/invocations", json={}, buffered=True)
    assert (reply.data, reply.headers["Content-Length"]) == (b"ab", "2")


def test_the_deadline_is_the_requests(code: Callable[..., Client], service: Service) -> None:
    def answer(request: CodeRequest) -> CodeReply:
        until = REQUEST_DEADLINE.get()
        assert until is not None
        return CodeReply(" ".join(f"{until(stream)[0]:.0f}" for stream in (False, True)).encode(), "text/plain")

    client = code(answer)
    assert client.post("/invocations", json={}, buffered=True).data == b"58 478"
    header = "X-Amzn-SageMaker-InvocationTimeoutSeconds"
    assert client.post("/invocations", json={}, buffered=True, headers={header: "9"}).data == b"9 9"
    assert client.post("/invocations", json={}, buffered=True, headers={header: "x"}).status_code == 400
    assert REQUEST_DEADLINE.get() is None  # the thread's next request is another's


def test_the_deadline_holds_for_the_last_piece_too(code: Callable[..., Client]) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(2):
            until = REQUEST_DEADLINE.get()
            assert until is not None
            yield f"{until(True)[0]:.0f} ".encode()

    client = code(lambda request: CodeReply(pieces(), "text/plain"))
    headers = {"X-Amzn-SageMaker-InvocationTimeoutSeconds": "9"}
    assert client.post("/invocations", json={}, headers=headers, buffered=True).data == b"9 9 "
    assert REQUEST_DEADLINE.get() is None


def test_it_answers_its_other_routes(code: Callable[..., Client], service: Service) -> None:
    client = code(lambda request: CodeReply(f"{request.method} {request.path}?{request.query}".encode(), "text/plain"))
    assert client.delete("/adapters/one?x=1", buffered=True).data == b"DELETE /adapters/one?x=1"
    assert client.get("/adapters", buffered=True).status_code == 501  # the endpoint's own: it has no adapters
    service.admission.limit = 0
    assert client.get("/ping", buffered=True).data == b"GET /ping?"  # a health check needs no admission
    eventually(lambda: 'endpoint_requests_total{route="/ping",status="200"}' in client.get("/metrics").text)
    service.lifecycle.drain()
    assert client.get("/ping", buffered=True).status_code == 503


def test_sessions_are_the_endpoints_before_the_code_too(code: Callable[..., Client], service: Service) -> None:
    def answer(request: CodeRequest) -> CodeReply | None:
        if request.body in (b"fail", b"fail late"):
            clock[0] += 100.0 * (request.body == b"fail late")
            raise CustomCodeFailed("predict_fn", ValueError())
        if request.body == b"close" and service.sessions is not None:
            service.sessions.close(identity)
        status = 424 if request.body == b"answers an error" else 200
        return None if request.body.startswith(b'{"prompt"') else CodeReply(request.body, "text/plain", status)

    def ask(session: str, body: bytes = b"a") -> Any:
        kind = "application/json"
        return client.post("/invocations", data=body, content_type=kind, headers={SESSION: session}, buffered=True)

    client, identity, clock = code(answer), "", [time.time()]
    assert (ask("NEW_SESSION").status_code, ask("unknown").status_code) == (400, 400)  # sessions are off
    assert ask("", b'{"requestType": "NEW_SESSION"}').status_code == 200  # the code's
    service.sessions = Sessions(2, 60, lambda: clock[0])
    identity = ask("NEW_SESSION").headers[NEW_SESSION].partition(";")[0]
    assert (ask(identity).data, ask("unknown").status_code) == (b"a", 400)
    for _ in range(3):
        failed = ask("NEW_SESSION", b"fail")
        assert (failed.status_code, NEW_SESSION in failed.headers, len(service.sessions)) == (500, False, 1)
    failed = ask("NEW_SESSION", b"answers an error")
    assert (failed.status_code, NEW_SESSION in failed.headers, len(service.sessions)) == (424, False, 1)
    left_to_the_endpoint = ask("NEW_SESSION", b'{"prompt": "a"}')
    assert len(left_to_the_endpoint.headers.getlist(NEW_SESSION)) == 1
    assert len(service.sessions) == 2
    assert (ask("NEW_SESSION", b"fail").status_code, len(service.sessions)) == (429, 2)  # before the code
    assert ask(identity, b'{"requestType": "CLOSE"}').get_json() == {"session_id": identity, "status": "closed"}
    assert ask("", b'{"requestType": "mine", "a": 1}').data == b'{"requestType": "mine", "a": 1}'
    assert ask(identity).status_code == 400
    identity = ask("NEW_SESSION").headers[NEW_SESSION].partition(";")[0]
    assert ask(identity, b"close").data == b"close"  # it was open as the code began
    assert ask("NEW_SESSION", b"fail late").status_code == 500, "the code's own error, though the session has expired"


def test_a_health_check_that_hangs_holds_up_no_request(
    code: Callable[..., Client], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, asked, seen = Event(), list[CodeRequest](), list[str]()

    def answers(code: ScriptedCode, method: str, path: str) -> bool:
        seen.append(path)
        return True

    monkeypatch.setattr(ScriptedCode, "answers", answers)

    def answer(request: CodeRequest) -> CodeReply:
        if request.path == "/ping":
            asked.append(request)
            ended.wait()
            return CodeReply(iter([b"he", b"althy"]), "text/plain")
        return CodeReply(b"answer", "text/plain")

    client = code(answer)
    checks = 2 * service.config.max_concurrent
    with ThreadPoolExecutor(checks) as threads:
        pings = [threads.submit(client.get, "/ping", buffered=True) for _ in range(checks)]
        eventually(lambda: seen.count("/ping") == checks)
        assert client.post("/invocations", json={}, buffered=True).data == b"answer"
        monkeypatch.setattr(custom_code_reply, "PING_SECONDS", 0.01)
        late = client.get("/ping", buffered=True)
        assert (late.status_code, "has not answered" in late.get_json()["error"]["message"]) == (500, True)
        assert len(asked) == 1
        ended.set()
        assert {ping.result().data for ping in pings} == {b"healthy"}
    monkeypatch.undo()
    assert client.get("/ping", buffered=True).data == b"healthy"
    assert len(asked) == 2


@pytest.mark.parametrize("catches", [False, True])  # code may make a reply of its own of the engine's error
def test_a_body_that_ends_the_engine_through_the_code_is_tried_alone_and_then_refused(
    code: Callable[..., Client], service: Service, engine: ScriptedEngine, catches: bool
) -> None:
    channel, deaths, model = RequestChannel(), DeathLog(), EngineModel(engine)  # type: ignore[arg-type]  # a stand-in

    def answer(request: CodeRequest) -> CodeReply:
        try:
            text = model.generate(request.body.decode()).text
        except EngineFailed:
            if not catches:
                raise
            return CodeReply(b"sorry", "text/plain", 503)
        return CodeReply(text.encode(), "text/plain")

    def ask(body: bytes) -> int:
        return client.post("/invocations", data=body, buffered=True).status_code

    client = code(answer)
    with ThreadPoolExecutor() as threads:
        service.recovery = Recovery(channel, deaths, 1.0)
        dying = [threads.submit(ask, body) for body in (b"<hold>", b"<gate:second>|a")]
        eventually(lambda: engine.unfinished() == 2)
        engine.fail_requests(EngineFailed("its process ended"))
        assert [each.result() for each in dying] == [503, 503]
        eventually(lambda: service.admission.count == 0)
        assert [presence.alone for presence in deaths.read()] == [False, False]

        service.recovery = Recovery(channel, deaths, 2.0)  # the next serving process
        engine.open("second")
        assert ask(b"<gate:second>|a") == 200  # a bystander
        dying = [threads.submit(ask, b"<hold>")]
        eventually(lambda: engine.unfinished() == 1)
        dying.append(threads.submit(ask, b"honest"))
        eventually(lambda: engine.queue.waiting == 1)
        engine.fail_requests(EngineFailed("its process ended"))
        assert dying[0].result() in ({503} if catches else {400})
        dying[1].result()
        eventually(lambda: service.admission.count == 0)
        assert [presence.alone for presence in deaths.read()].count(True) == 1

        service.recovery = Recovery(channel, deaths, 3.0)
        assert (ask(b"<hold>"), ask(b"<gate:second>|a")) == (400, 200)
