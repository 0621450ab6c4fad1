"""The page for people: what it says, what it must not say, and what it may load."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from werkzeug.test import Client

from container.routes.page_metrics import NAMES, summed
from container.server.failed_start import failed_lifecycle
from container.service import Service
from container.telemetry.request_observer import RECENT
from handler.config.loading.config_loader import load
from tests.container.http_client import http_client
from tests.container.scripted_engine import SLOTS, ScriptedEngine
from tests.handler.waiting import eventually

PARTS = Path(__file__).parents[3] / "container" / "page"
ENVIRONMENT = {
    "ENDPOINT_PAGE": "true",
    "ENDPOINT_MODEL": "org/<script>alert(1)</script>",
    "HF_TOKEN": "hf_topsecrettoken",
    "SM_VLLM_MAX_NUM_SEQS": "7",
}


def client_of(engine: ScriptedEngine | None, **environment: str) -> Client:
    service = Service.of(load({**ENVIRONMENT, **environment}), loop=None if engine is None else engine.loop)
    service.lifecycle.stage("fetch model")
    if engine is not None:
        service.engine = engine  # type: ignore[assignment]  # a stand-in
        service.lifecycle.ready()
    return http_client(service)


@pytest.fixture
def page(engine: ScriptedEngine) -> Client:
    return client_of(engine)


def test_it_is_off_unless_asked_for(service: Service) -> None:
    client = http_client(service)
    for path in ("/", "/page/state", "/page/settings", "/page/requests", "/page/page.js"):
        assert client.get(path).status_code == 404


def test_the_settings_have_their_source_and_what_they_overrode() -> None:
    client = client_of(None, ENDPOINT_CONFIG='{"max_num_seqs": 9}')
    settings = {row["field"]: row for row in client.get("/page/settings").get_json()}
    row = settings["max_num_seqs"]
    assert (row["value"], row["source"], row["given"]) == (7, "SM_VLLM_MAX_NUM_SEQS", True)
    assert row["overridden"] == ["9 (max_num_seqs in ENDPOINT_CONFIG)"]
    assert (settings["drain"]["given"], settings["drain"]["source"]) == (False, "default")
    assert all(row["doc"] for row in settings.values())


def test_the_steps_of_a_start_show_their_progress_to_people_and_to_prometheus() -> None:
    service = Service.of(load(ENVIRONMENT))
    client = http_client(service)
    service.lifecycle.stage("import vLLM")
    with service.lifecycle.step("import vLLM"):
        pass
    with service.lifecycle.step("fetch model", ("import vLLM",)):
        service.lifecycle.progress(30, 40, step="fetch model")
        service.lifecycle.stage("start engine")
        timeline = client.get("/page/state").get_json()["timeline"]
        figures = client.get("/metrics").get_data(as_text=True)
    assert [(row["step"], row["waited_for"], row["end"] is None) for row in timeline] == [
        ("bind port", [], False),
        ("import vLLM", [], False),
        ("fetch model", ["import vLLM"], True),
        ("start engine", ["bind port", "import vLLM"], True),
    ]
    assert (timeline[2]["done_bytes"], timeline[2]["total_bytes"]) == (30, 40)
    assert 'endpoint_start_step_done_bytes{step="fetch model"} 30.0' in figures
    assert 'endpoint_start_step_total_bytes{step="fetch model"} 40.0' in figures
    assert 'endpoint_start_step_seconds{step="import vLLM"}' in figures


def test_the_latest_requests_have_ids_lengths_and_outcome_and_no_text(page: Client) -> None:
    for number in range(RECENT + 3):
        body = {"prompt": f"secret {number}|<length>", "stream": number % 2 == 0}
        page.post("/v1/completions", json=body, buffered=True)
    page.post("/invocations", json={"prompt": 7}, buffered=True)
    eventually(lambda: page.get("/page/requests").get_json()[-1]["status"] == 400)
    reply = page.get("/page/requests")
    *others, last, refused = reply.get_json()
    assert len(others) + 2 == RECENT
    assert (last["status"], last["end"], last["route"], last["prompt_tokens"]) == (200, "length", "/v1/completions", 19)
    assert all(last[name] for name in ("request_id", "seconds", "output_tokens"))
    assert refused["error_code"]
    assert "secret" not in reply.get_data(as_text=True)
    assert page.get("/page/state").get_json()["last_request"] == refused["at"]


def test_secrets_are_masked_and_settings_are_data(page: Client) -> None:
    text = "".join(page.get(path).get_data(as_text=True) for path in ("/", "/page/state", "/page/settings"))
    assert "hf_token" in text
    assert "topsecret" not in text
    assert "alert(1)" not in page.get("/").get_data(as_text=True)
    assert page.get("/page/settings").content_type == "application/json"


def test_it_may_load_its_own_parts_only_and_they_are_there(page: Client) -> None:
    reply = page.get("/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = reply.get_data(as_text=True)
    assert not re.search(r"""<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|https?://""", text)
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
    for path in PARTS.rglob("*.*"):
        file = page.get(f"/page/{path.relative_to(PARTS).as_posix()}")
        if path.suffix in kinds:
            assert file.content_type.startswith(kinds[path.suffix])
            assert file.data == path.read_bytes()
            assert file.headers["Content-Security-Policy"] == policy
        else:
            assert file.status_code == 404
    for name in ("/page/../page_route.py", "/page/vendor", "/page/%2e%2e/service.py", "/page/vendor/README.md"):
        assert page.get(name).status_code == 404, name


def test_its_own_scripts_never_make_markup_of_text_and_are_small() -> None:
    own = [path for path in PARTS.iterdir() if path.is_file()]
    scripts = "".join(path.read_text() for path in own if path.suffix == ".js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", scripts)
    assert "vendor" not in (PARTS / "page.html").read_text(), "libraries are loaded after the first paint"
    assert sum(path.stat().st_size for path in own) < 100_000, "the first paint"


def test_the_libraries_are_the_files_of_their_packages() -> None:
    table = (PARTS / "vendor" / "README.md").read_text()
    digests = dict(re.findall(r"^\| `(.+?)` \|.*\| `([0-9a-f]{64})` \|$", table, re.MULTILINE))
    files = [path for path in (PARTS / "vendor").iterdir() if path.suffix != ".md"]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == digests


def test_the_state_while_it_starts_and_when_it_is_ready(page: Client) -> None:
    starting: dict[str, Any] = client_of(None).get("/page/state").get_json()
    assert (starting["state"], starting["stage"], starting["models"]) == ("starting", "fetch model", [])
    ready = page.get("/page/state").get_json()
    assert (ready["state"], ready["models"], ready["slots"]) == ("ready", [{"id": "scripted", "parent": None}], SLOTS)
    assert [row["step"] for row in ready["timeline"]] == ["bind port", "fetch model"]
    assert (ready["images"], ready["sessions"], ready["last_failure"]) == (False, False, None)
    assert client_of(None, ENDPOINT_ENABLE_SESSIONS="true").get("/page/state").get_json()["sessions"] is True


def test_a_stalled_engine_is_not_called_ready(page: Client, engine: ScriptedEngine) -> None:
    engine.silent = 9
    assert page.get("/page/state").get_json()["state"] == "stalled"


def test_a_failed_start_says_what_failed_and_its_last_reply_to_ping_makes_the_same_page() -> None:
    """The master serves the page after the serving process has ended, from what that said at /ping."""
    service = Service.of(load(ENVIRONMENT))
    with service.lifecycle.step("import vLLM", ("bind port",)):
        service.lifecycle.stage("fetch model")
        service.lifecycle.fail("no <memory> left")
    client = http_client(service)
    first = client.get("/page/state").get_json()
    assert (first["state"], first["stage"], first["reason"]) == ("failed", "fetch model", "no <memory> left")
    lifecycle = failed_lifecycle(client.get("/ping").data, "unknown")
    again = http_client(Service.of(load(ENVIRONMENT), lifecycle))
    second = again.get("/page/state").get_json()
    assert [(row["step"], row["waited_for"]) for row in second["timeline"]] == [
        (row["step"], row["waited_for"]) for row in first["timeline"]
    ]
    assert (second["state"], second["stage"], second["reason"]) == ("failed", "fetch model", "no <memory> left")
    assert again.get("/").status_code == 200
    assert again.post("/v1/completions", json={"prompt": "a"}).get_json()["error"]["code"] == "engine_failed"
    after_it_served = failed_lifecycle(b'{"stage":"ready","seconds":9.0}', "unknown")
    assert (after_it_served.status.reason, after_it_served.timeline()) == ("unknown", [])
    assert failed_lifecycle(b"", "unknown").status.reason == "unknown"


def test_vllms_figures_are_summed_over_their_labels() -> None:
    registry = CollectorRegistry()
    tokens = Counter("vllm:generation_tokens", "", ["engine"], registry=registry)
    tokens.labels("0").inc(3)
    tokens.labels("1").inc(4)
    Gauge("vllm:kv_cache_usage_perc", "", ["engine"], registry=registry).labels("0").set(0.25)
    Gauge("vllm:other", "", registry=registry)
    shown = summed(registry.restricted_registry(NAMES).collect())
    assert shown == {"vllm:generation_tokens_total": 7, "vllm:kv_cache_usage_perc": 0.25}


@pytest.mark.parametrize("path", ["/", "/page/state", "/page/settings", "/page/requests", "/page/page.js"])
def test_a_foreign_name_for_this_machine_gets_nothing(page: Client, path: str) -> None:
    reply = page.get(path, headers={"Host": "evil.example"})
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (403, "foreign_host")
    for host in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        assert page.get(path, headers={"Host": host}).status_code == 200
