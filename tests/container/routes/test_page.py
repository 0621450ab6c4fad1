"""The page for people: what it says, what it must not say, and what it may load."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from http_client import http_client
from prometheus_client import CollectorRegistry, Counter, Gauge
from scripted_engine import SLOTS, ScriptedEngine
from werkzeug.test import Client

from container.routes.page_metrics import vllm_metrics
from container.service import Service
from handler.config.loading.config_loader import load

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
    for path in ("/", "/page/state", "/page/page.js"):
        assert client.get(path).status_code == 404


def test_it_says_state_stages_and_settings_with_their_sources(page: Client) -> None:
    text = page.get("/").get_data(as_text=True)
    assert '<span id="state" class="state ready" role="status">ready</span>' in text
    assert "<td>fetch model</td>" in text
    assert "<td>max_num_seqs</td><td>7</td><td>SM_VLLM_MAX_NUM_SEQS</td>" in text


def test_the_steps_of_a_start_show_their_progress_to_people_and_to_prometheus() -> None:
    service = Service.of(load(ENVIRONMENT))
    client = http_client(service)
    with service.lifecycle.step("import vLLM"):
        pass
    with service.lifecycle.step("fetch model"):
        service.lifecycle.progress(30, 40, step="fetch model")
        page_steps = client.get("/page/state").get_json()["steps"]
        figures = client.get("/metrics").get_data(as_text=True)
    assert [(one["step"], one["running"]) for one in page_steps] == [("import vLLM", False), ("fetch model", True)]
    assert (page_steps[1]["done_bytes"], page_steps[1]["total_bytes"]) == (30, 40)
    assert 'endpoint_start_step_done_bytes{step="fetch model"} 30.0' in figures
    assert 'endpoint_start_step_total_bytes{step="fetch model"} 40.0' in figures
    assert 'endpoint_start_step_seconds{step="import vLLM"}' in figures


def test_secrets_are_masked_and_settings_are_text(page: Client) -> None:
    text = page.get("/").get_data(as_text=True)
    assert "hf_token" in text
    assert "topsecret" not in text + page.get("/page/state").get_data(as_text=True)
    assert "<script>alert" not in text
    assert html.escape("org/<script>alert(1)</script>") in text


def test_it_may_load_its_own_parts_only_and_they_are_there(page: Client) -> None:
    reply = page.get("/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = reply.get_data(as_text=True)
    assert not re.search(r"""<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|https?://""", text)
    for path, kind in (("/page/page.js", "text/javascript"), ("/page/page.css", "text/css")):
        assert path in text
        assert page.get(path).content_type.startswith(kind)


def test_its_script_never_makes_markup_of_text() -> None:
    script = (PARTS / "page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)


def test_the_state_while_it_starts_and_when_it_is_ready(page: Client) -> None:
    starting: dict[str, Any] = client_of(None).get("/page/state").get_json()
    assert (starting["state"], starting["stage"], starting["model"]) == ("starting", "fetch model", None)
    ready = page.get("/page/state").get_json()
    assert (ready["state"], ready["model"], ready["slots"]) == ("ready", "scripted", SLOTS)
    assert [one["stage"] for one in ready["stages"]] == ["bind port", "fetch model"]


def test_a_stalled_engine_is_not_called_ready(page: Client, engine: ScriptedEngine) -> None:
    engine.silent = 9
    assert page.get("/page/state").get_json()["state"] == "stalled"


def test_the_page_is_there_while_it_starts_and_after_it_failed() -> None:
    service = Service.of(load(ENVIRONMENT))
    client = http_client(service)
    assert client.get("/").status_code == 200
    service.lifecycle.fail("no <memory> left")
    assert "no &lt;memory&gt; left" in client.get("/").get_data(as_text=True)


def test_vllms_figures_are_summed_over_their_labels() -> None:
    registry = CollectorRegistry()
    tokens = Counter("vllm:generation_tokens", "", ["engine"], registry=registry)
    tokens.labels("0").inc(3)
    tokens.labels("1").inc(4)
    Gauge("vllm:kv_cache_usage_perc", "", ["engine"], registry=registry).labels("0").set(0.25)
    Gauge("vllm:other", "", registry=registry)
    assert vllm_metrics(registry) == {"vllm:generation_tokens_total": 7, "vllm:kv_cache_usage_perc": 0.25}


@pytest.mark.parametrize("path", ["/", "/page/state", "/page/page.js"])
def test_a_foreign_name_for_this_machine_gets_nothing(page: Client, path: str) -> None:
    reply = page.get(path, headers={"Host": "evil.example"})
    assert (reply.status_code, reply.json["error"]["code"]) == (403, "foreign_host")
    for host in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        assert page.get(path, headers={"Host": host}).status_code == 200
