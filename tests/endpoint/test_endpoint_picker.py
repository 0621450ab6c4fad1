"""An endpoint picker's view of two endpoints, on every vLLM: it scrapes /metrics, and has to find the idle one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection, HTTPResponse

import pytest
from prometheus_client.parser import text_string_to_metric_families

import sample_model
from handler.neuron.hardware.installed_packages import installed_versions
from tests.endpoint.serve_process import ServeProcess

pytestmark = [pytest.mark.engine]
SLOTS = 2
LOAD = ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc")
COUNTERS = ("vllm:prefix_cache_queries", "vllm:prefix_cache_hits")


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServeProcess]]:
    environment = {
        "ENDPOINT_MODEL": str(sample_model.path()),
        "SM_VLLM_MAX_NUM_SEQS": str(SLOTS),
        "ENDPOINT_DRAIN": "60",
    }
    served = []
    try:
        for name in ("busy", "idle"):
            served.append(ServeProcess(tmp_path_factory.mktemp(name), environment))
            served[-1].wait_port()
            served[-1].wait_ready()
        yield served
    finally:
        for endpoint in served:
            endpoint.kill_all()


def scraped(endpoint: ServeProcess) -> dict[str, float]:
    """The values by name, as a picker reads them: one for each name."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(endpoint.client.get("/metrics").text):
        if family.name in (*LOAD, *COUNTERS, "vllm:lora_requests_info"):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    assert sample.name not in values, f"{sample.name} twice"
                    values[sample.name] = sample.value
    return values


def load(endpoint: ServeProcess) -> list[float]:
    values = scraped(endpoint)
    return [values[name] for name in LOAD]


def is_loaded(endpoint: ServeProcess) -> bool:
    return min(load(endpoint)) > 0


def is_idle(endpoint: ServeProcess) -> bool:
    return load(endpoint) == [0, 0, 0]


def picked(endpoints: list[ServeProcess]) -> ServeProcess:
    """The endpoint with the shortest queue, then with the fewest requests."""
    return min(endpoints, key=load)


def sent(endpoint: ServeProcess, stack: ExitStack, length: int = 900) -> HTTPConnection:
    """A connection on which a stream was asked for. Nothing of the reply is read: it may wait for a slot."""
    connection = stack.enter_context(closing(HTTPConnection("127.0.0.1", endpoint.port, timeout=120)))
    body = {"prompt": "Once", "max_tokens": length, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_a_picker_finds_the_idle_endpoint(endpoints: list[ServeProcess]) -> None:
    for busy in endpoints:  # either may be the busy one
        (idle,) = (endpoint for endpoint in endpoints if endpoint is not busy)
        with ExitStack() as stack:
            for _ in range(3 * SLOTS):
                sent(busy, stack)
            busy.until(partial(is_loaded, busy), 60)  # the KV cache is in use from the first step on
            waiting, running, kv_use = load(busy)
            assert 1 <= waiting <= 2 * SLOTS  # whoever has ended counts no more
            assert running == SLOTS
            assert 0 < kv_use <= 1
            assert picked(endpoints) is idle
            assert load(idle) == [0, 0, 0]
        # All clients have left. No step of the engine follows that could say so.
        busy.until(partial(is_idle, busy), 60)


def test_the_prefix_cache_is_counted(endpoints: list[ServeProcess]) -> None:
    endpoint = endpoints[0]
    body = {"prompt": "A long tale of a fox and a hen. " * 12, "max_tokens": 1}
    seen = []
    for _ in range(2):
        assert endpoint.client.post("/v1/completions", json=body).status_code == 200
        seen.append(scraped(endpoint))
    queries, hits = (f"{name}_total" for name in COUNTERS)
    if seen[0][queries]:  # else this vLLM counts none
        assert seen[1][queries] > seen[0][queries]
        assert seen[1][hits] > seen[0][hits]
    assert "vllm:lora_requests_info" in seen[0]


@pytest.mark.skipif(
    installed_versions()["vllm"].startswith("0.9."), reason="the engine V0 has vLLM's metrics in its own process"
)
def test_a_scrape_counts_every_token_of_the_replies_before_it(endpoints: list[ServeProcess]) -> None:
    endpoint, name = endpoints[0], "vllm:generation_tokens_total"
    before, tokens = endpoint.metric(name), 0
    for more in (1, 20, 2, 3):
        body = {"prompt": "Once", "max_tokens": more, "ignore_eos": True}
        assert endpoint.client.post("/v1/completions", json=body).status_code == 200
        tokens += more
        assert endpoint.metric(name) - before == tokens


def test_who_drains_is_not_ready_and_ends_what_it_has(endpoints: list[ServeProcess]) -> None:
    endpoint = endpoints[0]
    with ExitStack() as stack:
        reply: HTTPResponse = sent(endpoint, stack, 200).getresponse()
        first = reply.readline()
        assert endpoint.ping()[0] == endpoint.client.get("/health").status_code == 200  # routers ask for the latter
        endpoint.process.send_signal(signal.SIGTERM)  # what Kubernetes sends after preStop
        endpoint.until(lambda: endpoint.ping()[0] in (0, 503), 30)
        rest = reply.read()
    assert first.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")
    assert endpoint.process.wait(60) == 0
