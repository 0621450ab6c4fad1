"""Padding on /metrics, on the page and in the log."""

from __future__ import annotations

import pytest
from werkzeug.test import Client

from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from tests.container.scripted_engine import ScriptedEngine, ready_service
from tests.container.telemetry.log_lines import Lines
from tests.handler.waiting import eventually

# A prompt of the scripted engine is its script: three pieces, and the end.
BODY = {"messages": [{"role": "user", "content": "a|b|c"}]}


@pytest.fixture
def service(engine: ScriptedEngine) -> Service:
    engine.buckets = CompiledBuckets((8, 512), (16, 512), (1, 4))
    return ready_service(EndpointConfig(model="scripted", page=True, log_format="json"), engine)


def counted(client: Client) -> dict[str, float]:
    lines = client.get("/metrics").get_data(as_text=True).splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("endpoint_tokens_")}


def test_metrics_page_and_log_tell_the_same(client: Client, log: Lines) -> None:
    reply = client.post("/invocations", json=BODY, buffered=True)
    usage = reply.get_json()["usage"]
    prompt, output = usage["prompt_tokens"], usage["completion_tokens"]
    assert output == 4
    prefill, decode = (8 if prompt <= 8 else 512), (16 if prompt + 3 <= 16 else 512)
    context = 3 * prompt + 6  # of three steps: the first token comes from the prefill
    (end,) = log.events("request_end")
    found = counted(client)
    assert found[f'endpoint_tokens_asked_total{{bucket="{prefill}",phase="prefill"}}'] == prompt
    assert found[f'endpoint_tokens_computed_total{{bucket="{prefill}",phase="prefill"}}'] == prefill
    assert found[f'endpoint_tokens_asked_total{{bucket="{decode}",phase="decode"}}'] == context
    assert found[f'endpoint_tokens_computed_total{{bucket="{decode}",phase="decode"}}'] == 3 * decode
    shares = client.get("/page/state").get_json()["padding"]
    assert shares == {
        "prefill": pytest.approx(1 - prompt / prefill, abs=1e-3),
        "decode": pytest.approx(1 - context / (3 * decode), abs=1e-3),
    }
    names = ("prompt_tokens_computed", "context_tokens", "context_tokens_computed")
    assert [end[name] for name in names] == [prefill, context, 3 * decode]


def test_without_buckets_nothing_is_counted(client: Client, engine: ScriptedEngine) -> None:
    engine.buckets = None
    assert client.post("/invocations", json=BODY, buffered=True).status_code == 200
    eventually(lambda: 'endpoint_requests_total{route="/invocations",status="200"} 1.0' in client.get("/metrics").text)
    assert counted(client) == {}
    assert client.get("/page/state").get_json()["padding"] == {}
