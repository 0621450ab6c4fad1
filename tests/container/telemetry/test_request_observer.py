"""What the log, /metrics and EMF tell of requests, by real requests through the routes to the scripted engine."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

import container.server.worker
from container.requests.request_record import HANDED_OVER, RequestRecord
from container.serve import Timeline
from container.server.worker import EngineWorker
from container.service import Service
from container.telemetry import event_log, request_observer
from container.telemetry.embedded_metrics import MAX_VALUES, EmbeddedMetrics, document
from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_contract import CodeReply, CodeRequest
from handler.startup.lifecycle import Lifecycle, TimedStep
from model_packaging.deployment.start_timeline import last_start
from tests.container.http_client import broken_body, http_client
from tests.container.scripted_engine import MAX_BODY, PLACES, ScriptedEngine, ready_service
from tests.container.telemetry.log_lines import Lines
from tests.handler.waiting import eventually

CHAT = {"messages": [{"role": "user", "content": "secret|b|c"}]}
HEADERS = {
    "X-Amzn-SageMaker-Custom-Attributes": "trace_id=abc-1;other=x",
    "X-Amzn-SageMaker-Inference-Id": "inf-7",
    "X-Amzn-SageMaker-Target-Variant": "blue",
}


def service_of(engine: ScriptedEngine, **settings: Any) -> Service:
    config = EndpointConfig(model="scripted", max_concurrent=PLACES, max_body=MAX_BODY, **settings)
    return ready_service(config, engine)


@pytest.fixture
def client(engine: ScriptedEngine) -> Client:
    return http_client(service_of(engine, log_format="json"))


def post(client: Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(path, json=body, headers=HEADERS, buffered=True)


def metrics(client: Client) -> dict[tuple[str, ...], float]:
    text = client.get("/metrics").get_data(as_text=True)
    return {
        (sample.name, *(value for key, value in sorted(sample.labels.items()) if key != "le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_a_whole_reply_is_two_events_without_its_prompt(client: Client, log: Lines) -> None:
    reply = post(client, "/v1/chat/completions", CHAT)
    (start,), (end,) = log.events("request_start"), log.events("request_end")
    assert start["request_id"] == end["request_id"] == reply.json["id"]
    for line in (start, end):
        assert (line["trace_id"], line["inference_id"]) == ("abc-1", "inf-7")
        assert line["custom_attributes"] == {"trace_id": "abc-1", "other": "x"}
        assert line["target_variant"] == "blue"
        assert line["route"] == "/v1/chat/completions"
        assert line["prompt_tokens"] == reply.json["usage"]["prompt_tokens"]
    assert (end["status"], end["end"], end["stream"]) == (200, "stop", False)
    assert end["output_tokens"] == reply.json["usage"]["completion_tokens"]
    assert end["seconds"] > 0
    assert "secret" not in "".join(log.lines)


def test_a_stream_tells_its_first_token_and_those_after_it(client: Client, log: Lines) -> None:
    post(client, "/invocations", {**CHAT, "stream": True})
    (end,) = log.events("request_end")
    assert end["output_tokens"] == 4  # three pieces and the end
    assert 0 <= end["first_token_seconds"] <= end["seconds"]
    assert end["between_tokens_seconds"] >= 0
    seen = metrics(client)
    assert seen["endpoint_requests_total", "/invocations", "200"] == 1
    assert seen["endpoint_first_token_seconds_count", "/invocations"] == 1
    assert seen["endpoint_between_tokens_seconds_count", "/invocations"] == 1
    assert seen["endpoint_output_tokens_total", "/invocations"] == 4
    assert seen["endpoint_start_stage_seconds", "warm up"] >= 0
    assert seen["endpoint_request_ends_total", "stop", "/invocations"] == 1


@pytest.mark.parametrize(
    ("path", "body", "route", "status", "end"),
    [
        ("/invocations", {**CHAT, "temperature": "hot"}, "/invocations", 400, "InvalidField"),
        ("/v1/completions", {"prompt": "a|<fail>"}, "/v1/completions", 500, "GenerationFailed"),
        ("/v1/completions", {"prompt": "a|<length>"}, "/v1/completions", 200, "length"),
        ("/invocations", {"inputs": ["a|<length>", "b"]}, "/invocations", 200, "length"),
        ("/invocations", {"inputs": ["a", "b"]}, "/invocations", 200, "stop"),
        ("/v1/completions", {"prompt": "a|<fail>", "stream": True}, "/v1/completions", 200, "GenerationFailed"),
        ("/secret/path", CHAT, "(none)", 404, "RouteNotFound"),
    ],
)
def test_how_it_ended(
    client: Client, log: Lines, path: str, body: dict[str, Any], route: str, status: int, end: str
) -> None:
    reply = client.post(path, json=body, headers=HEADERS)
    assert reply.status_code == status
    if "stream" in body:
        broken_body(reply)
    (line,) = log.events("request_end")
    assert (line["route"], line["status"], line["end"]) == (route, status, end)
    assert metrics(client)["endpoint_requests_total", route, str(status)] == 1


def test_a_reply_that_is_closed_early_says_so(client: Client, log: Lines, engine: ScriptedEngine) -> None:
    reply = client.post("/v1/completions", json={"prompt": "a|<hold>", "stream": True})
    next(iter(reply.response))
    assert not log.events("request_end", 0)
    reply.close()
    (line,) = log.events("request_end")
    assert line["end"] == "client_left"


def test_a_stream_that_is_ended_early_has_no_time_between_tokens(
    client: Client, log: Lines, engine: ScriptedEngine
) -> None:
    reply = client.post("/v1/completions", json={"prompt": "a|b|<hold>", "stream": True})
    parts = iter(reply.response)
    next(parts), next(parts)
    reply.close()
    (end,) = log.events("request_end")
    assert (end["end"], end["output_tokens"]) == ("client_left", 2)
    assert "first_token_seconds" in end
    assert "between_tokens_seconds" not in end
    assert ("endpoint_between_tokens_seconds_count", "/v1/completions") not in metrics(client)


class HandleStandIn:
    """LMI's `handle`, which leaves a request to the endpoint if its reply is None."""

    may_decline: ClassVar[bool] = True
    manages_sessions: ClassVar[bool] = False

    def __init__(self, reply: CodeReply | None) -> None:
        self.reply = reply

    def answers(self, method: str, path: str) -> bool:
        return path == "/invocations"

    def invoke(self, request: CodeRequest) -> CodeReply | None:
        return self.reply


class HooksStandIn(HandleStandIn):
    """Hooks, which answer every request.

    :param log: has the request's start by the time they run.
    """

    may_decline: ClassVar[bool] = False
    manages_sessions: ClassVar[bool] = False

    def __init__(self, log: Lines) -> None:
        super().__init__(CodeReply(b"{}", "application/json"))
        self.log = log

    def invoke(self, request: CodeRequest) -> CodeReply | None:
        self.log.events("request_start")  # waits for it
        return self.reply


@pytest.mark.parametrize("code", ["handle", "handle that leaves it", "hooks"])
def test_a_request_to_custom_code_has_one_start_and_one_end(engine: ScriptedEngine, log: Lines, code: str) -> None:
    service = service_of(engine, log_format="json")
    reply = None if code == "handle that leaves it" else CodeReply(b"{}", "application/json")
    service.custom_code = HooksStandIn(log) if code == "hooks" else HandleStandIn(reply)
    assert post(http_client(service), "/invocations", CHAT).status_code == 200
    (end,), (start,) = log.events("request_end"), log.events("request_start")
    assert start["request_id"] == end["request_id"]


def test_prompts_are_logged_where_that_is_asked_for(
    engine: ScriptedEngine, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = http_client(service_of(engine, log_requests=True, log_prompts=True))
    post(client, "/invocations", CHAT)
    (start,) = log.events("request_start")
    assert json.loads(start["body"]) == CHAT
    monkeypatch.setattr(request_observer, "MAX_LOGGED_BODY", 9)
    post(client, "/invocations", CHAT)
    assert log.events("request_start", 2)[1]["body"] == start["body"][:9]


def test_fields_without_effect_are_logged_once_and_not_without_end(
    client: Client, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_observer, "MAX_IGNORED_NAMES", 2)
    for name in ("first", "first", "second", "third"):
        post(client, "/invocations", {"inputs": "a", "parameters": {name: 1}})
    log.events("request_end", 4)
    assert [line["message"].split("'")[1] for line in log.events("log")] == ["parameters.first", "parameters.second"]


def test_nothing_is_logged_of_requests_where_that_is_off(engine: ScriptedEngine, log: Lines) -> None:
    client = http_client(service_of(engine, log_format="json", log_requests=False))
    post(client, "/invocations", {**CHAT, "stream": True})
    eventually(lambda: ("endpoint_requests_total", "/invocations", "200") in metrics(client))
    assert metrics(client)["endpoint_output_tokens_total", "/invocations"] == 4
    assert metrics(client)["endpoint_request_ends_total", "stop", "/invocations"] == 1
    assert not log.lines


def test_an_id_from_a_client_stays_on_one_line_and_short(client: Client, log: Lines) -> None:
    headers = {"X-Amzn-SageMaker-Custom-Attributes": 'trace_id="x","level":"error' + "y" * 900}
    client.post("/invocations", json=CHAT, headers=headers, buffered=True)
    (end,) = log.events("request_end")
    assert end["level"] == "info"
    assert len(end["trace_id"]) == 256


@pytest.mark.parametrize(
    ("setting", "environ", "terminal", "as_json"),
    [
        (None, {}, False, True),
        (None, {}, True, False),
        (None, {"SAGEMAKER_BASE_DIR": "build"}, False, False),
        ("json", {"SAGEMAKER_BASE_DIR": "build"}, True, True),
        ("text", {}, False, False),
    ],
)
def test_the_format(setting: str | None, environ: dict[str, str], terminal: bool, as_json: bool) -> None:
    assert event_log.json_wanted(EndpointConfig(log_format=setting), environ, terminal) == as_json


def test_the_start_is_events_too(log: Lines) -> None:
    timeline = Timeline(0.0, as_json=True)
    timeline.bound(8080)
    timeline.stage_ended("fetch model", 1.5)
    timeline.ready()
    timeline.failed("no memory")
    (stage,) = log.events("stage")
    assert (stage["stage"], stage["seconds"]) == ("fetch model", 1.5)
    assert stage["message"] == "fetch model: 1.5 s"
    assert [line["port"] for line in log.events("listening") + log.events("ready")] == [8080, 8080]
    assert log.events("failed")[0]["level"] == "error"


def test_the_end_of_a_start_has_its_steps_with_what_they_waited_for(
    log: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (True, False):
        timeline = Timeline(time.clock_gettime(time.CLOCK_BOOTTIME) - 10, as_json=as_json)
        lifecycle = Lifecycle(timeline.stage_ended, timeline.ready, timeline.failed)
        timeline.steps = lifecycle.timeline
        now = time.monotonic()
        lifecycle.steps["fetch model"] = TimedStep("fetch model", (), now - 9, now - 1)
        lifecycle.steps["import vLLM"] = TimedStep("import vLLM", ("prepare custom code",), now - 8, now - 2)
        for stage in ("fetch model", "import vLLM", "start engine", "warm up"):
            lifecycle.stage(stage)
        lifecycle.ready()
    printed = next(json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    for line in (*log.events("timeline"), printed):
        steps = {step["step"]: step["waited_for"] for step in line["steps"]}
        assert steps == {
            "fetch model": [],
            "import vLLM": ["prepare custom code"],
            "bind port": [],
            "start engine": ["bind port", "fetch model", "import vLLM"],
            "warm up": ["start engine"],
        }
        assert [step["step"] for step in line["steps"]] == list(steps), "in the order of their begin"
        first = line["steps"][0]
        assert (round(first["begin_seconds"]), round(first["end_seconds"])) == (1, 9)
    assert last_start([json.dumps(printed), "other"]) == printed["steps"]


def test_a_traceback_is_within_its_line(log: Lines) -> None:
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    (line,) = log.events("log")
    assert "\n" not in log.lines[0]
    assert "ValueError: broken\nin two" in line["traceback"]
    logging.getLogger("x").error("a" * event_log.MAX_TEXT + "b")
    assert log.events("log", 2)[1]["message"] == "a" * event_log.MAX_TEXT


def test_emf_is_what_cloudwatch_reads(engine: ScriptedEngine) -> None:
    service, written = service_of(engine, emf=True), list[str]()
    service.observer.emf = EmbeddedMetrics("sample", lambda: 3, written.append)
    client = http_client(service)
    post(client, "/invocations", {**CHAT, "stream": True})
    post(client, "/invocations", {**CHAT, "temperature": "hot"})
    post(client, "/v1/completions", {"prompt": "<fail>"})
    client.get("/ping")
    record = RequestRecord({"REQUEST_METHOD": "POST"})
    record.status, record.end = 503, HANDED_OVER  # the next process counts it
    service.observer.ended(record)
    service.observer.close()
    (line,) = written
    found = json.loads(line)
    (about,) = found["_aws"]["CloudWatchMetrics"]
    assert about["Namespace"] == "NeuronEndpoint"
    assert about["Dimensions"] == [["Model"], []]
    assert found["Model"] == "sample"
    assert (found["Requests"], found["ClientErrors"], found["ServerErrors"], found["OutputTokens"]) == (3, 1, 1, 4)
    assert found["RequestsInFlight"] == 3
    assert len(found["RequestTime"]) == 3
    assert len(found["TimeToFirstToken"]) == 1
    assert {metric["Name"] for metric in about["Metrics"]} == set(found) - {"_aws", "Model"}


def test_emf_is_not_written_by_who_answers(engine: ScriptedEngine) -> None:
    """Whoever reads standard output may be slow."""
    service, writers = service_of(engine, emf=True, log_requests=False), list[str]()
    emf = EmbeddedMetrics("sample", lambda: 3, lambda text: writers.append(threading.current_thread().name))
    service.observer.emf = emf
    for _ in range(500):
        service.observer.ended(RequestRecord({"REQUEST_METHOD": "POST"}))
    service.observer.close()
    assert writers
    assert threading.current_thread().name not in writers


@pytest.mark.parametrize("end", [EngineWorker._stop, EngineWorker.end])
def test_the_process_ends_with_a_line_of_emf_for_its_last_requests(
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: Callable[[EngineWorker], None],
) -> None:
    """The requests that an engine's death has failed are among them."""
    service = service_of(engine, emf=True, log_requests=False)
    assert post(http_client(service), "/v1/completions", {"prompt": "a|<fail>"}).status_code == 500
    service.engine = None
    worker = EngineWorker.__new__(EngineWorker)
    worker.service, worker.app = service, SimpleNamespace(restarted=False)
    monkeypatch.setattr(container.server.worker, "leave", lambda status: None)
    end(worker)
    assert json.loads(capsys.readouterr().out)["ServerErrors"] == 1


def test_a_request_that_has_ended_keeps_no_body(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record may wait long for whoever reads the log."""
    service, ended = service_of(engine, emf=True), list[RequestRecord]()
    monkeypatch.setattr(EmbeddedMetrics, "observe", lambda _, record, seconds: ended.append(record))
    post(http_client(service), "/v1/completions", {"prompt": "a"})
    service.observer.close()
    eventually(lambda: [record.body for record in ended] == [b""])


def test_emf_never_has_more_values_than_a_document_may() -> None:
    written: list[str] = []
    emf = EmbeddedMetrics("m", lambda: 0, written.append)
    for _ in range(2 * MAX_VALUES + 1):
        emf.observe(RequestRecord({"REQUEST_METHOD": "POST"}), 0.1)
    emf.flush()
    assert [json.loads(line)["Requests"] for line in written] == [MAX_VALUES, MAX_VALUES, 1]


@pytest.mark.parametrize(("model", "shown"), [("模\n-1", "? -1"), ("a" * 2000, "a" * 1024)])
def test_the_dimension_is_what_cloudwatch_takes(model: str, shown: str) -> None:
    assert json.loads(document([], model, 0, 0.0))["Model"] == shown


def test_a_minute_without_requests_is_zeros() -> None:
    found = json.loads(document([], "m", 0, 1700000000.0))
    assert found["_aws"]["Timestamp"] == 1700000000000
    assert found["Requests"] == 0
    assert "RequestTime" not in found
