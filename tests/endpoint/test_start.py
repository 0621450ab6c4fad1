"""The start, as SageMaker sees it."""

from __future__ import annotations

import json
import time

import pytest

from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.vllm_versions import SEEN, UNSEEN, public
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine


def test_the_port_accepts_connections_before_anything_else_is_done(endpoint: ServeProcess) -> None:
    """How soon is measured by the benchmarks (`setup_s`); here it is the first line of the log."""
    assert "listening on port" in endpoint.log.splitlines()[0]


def test_ping_tells_503_and_the_stage_from_the_first_answer_on(endpoint: ServeProcess) -> None:
    before, (_, last, _) = endpoint.pings[:-1], endpoint.pings[-1]
    assert last == 200
    assert before, "it was ready at the first question: nothing was seen of the start"
    assert {status for _, status, _ in before} == {503}, before
    stages = [json.loads(body)["stage"] for _, _, body in before]
    assert {"import vLLM", "start engine", "warm up"} <= set(stages)
    assert all(json.loads(body)["status"] == "starting" for _, _, body in before)


def test_the_stage_of_the_fetch_ends_before_the_import_that_goes_on_beside_it(endpoint: ServeProcess) -> None:
    records = [json.loads(line) for line in endpoint.log.splitlines() if line.startswith("{")]
    (fetched,) = [record for record in records if record["event"] == "stage" and record["stage"] == "fetch model"]
    (timeline,) = [record for record in records if record["event"] == "timeline"]
    (imported,) = [step for step in timeline["steps"] if step["step"] == "import vLLM"]
    assert fetched["since_start_seconds"] < imported["end_seconds"]


def test_a_line_for_each_stage_and_a_curl_line(endpoint: ServeProcess) -> None:
    for stage in ("listening on port", "fetch model:", "import vLLM:", "start engine:", "warm up:", "ready. Try:"):
        assert stage in endpoint.log
    assert f"curl -s {endpoint.url}/invocations" in endpoint.log
    assert "Traceback" not in endpoint.log


@pytest.mark.skipif(public(installed_versions()["vllm"]) in ("0.9.1", "0.11.0"), reason="this vLLM hides no output")
def test_what_gloo_and_torch_say_of_themselves_is_not_in_the_log(endpoint: ServeProcess) -> None:
    assert "[Gloo]" not in endpoint.log
    assert "CUDA runtime" not in endpoint.log


def test_the_log_says_which_vllm_was_found_and_whether_it_was_seen(endpoint: ServeProcess) -> None:
    version = public(installed_versions()["vllm"])
    assert f"vLLM {version} is installed: {SEEN.get(version, UNSEEN)}" in endpoint.log
    assert ("[vllm-not-seen]" in endpoint.log) == (version not in SEEN)


def test_ready_means_an_empty_200(endpoint: ServeProcess) -> None:
    reply = endpoint.client.get("/ping")
    assert (reply.status_code, reply.content) == (200, b"")


def test_the_first_sampled_request_is_as_warm_as_a_greedy_one(endpoint: ServeProcess) -> None:
    """Without a sampling warm-up the first sampled request takes 15 s and more, hundreds of times a greedy one."""
    body = {"prompt": "Question: Who are you?\nAnswer:", "max_tokens": 4}

    def seconds(**sampling: float) -> float:
        began = time.monotonic()
        assert endpoint.client.post("/invocations", json={**body, **sampling}).status_code == 200
        return time.monotonic() - began

    sampled = seconds(temperature=0.9, top_p=0.8, top_k=7)
    greedy = max(seconds(temperature=0) for _ in range(5))
    assert sampled < 50 * greedy
