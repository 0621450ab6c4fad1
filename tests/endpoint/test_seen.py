"""What a real engine behind a real server tells of its requests: in /metrics and in the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

ROUTE = "/v1/completions"
TOKENS = 24
BODY: dict[str, Any] = {
    "prompt": "What does /ping mean?",
    "max_tokens": TOKENS,
    "ignore_eos": True,
    "temperature": 0,
    "stream": True,
}


def figures(endpoint: ServeProcess) -> dict[tuple[str, ...], float]:
    text = endpoint.client.get("/metrics").text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def events(endpoint: ServeProcess, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in endpoint.log.splitlines() if line.startswith('{"time"')]
    return [line for line in lines if line["event"] == name]


def test_a_stream_is_counted_and_logged(endpoint: ServeProcess) -> None:
    before = figures(endpoint)
    reply = endpoint.client.post(ROUTE, json=BODY, headers={"X-Amzn-SageMaker-Inference-Id": "seen-1"})
    assert reply.text.endswith("data: [DONE]\n\n")
    endpoint.until(lambda: any(line.get("inference_id") == "seen-1" for line in events(endpoint, "request_end")), 10)

    (end,) = [line for line in events(endpoint, "request_end") if line.get("inference_id") == "seen-1"]
    assert (end["route"], end["status"], end["end"], end["output_tokens"]) == (ROUTE, 200, "length", TOKENS)
    assert 0 < end["first_token_seconds"] < end["seconds"]
    assert end["between_tokens_seconds"] * (TOKENS - 1) <= end["seconds"] - end["first_token_seconds"] + 0.001
    assert end["request_id"] in reply.text
    assert BODY["prompt"] not in endpoint.log.partition("request_start")[2]

    after = figures(endpoint)
    assert (
        after["endpoint_output_tokens_total", ROUTE] - before.get(("endpoint_output_tokens_total", ROUTE), 0) == TOKENS
    )
    assert after["endpoint_requests_total", ROUTE, "200"] > before.get(("endpoint_requests_total", ROUTE, "200"), 0)
    assert after["endpoint_start_stage_seconds", "start engine"] > 0


def test_a_beam_search_counts_as_its_usage_does(endpoint: ServeProcess) -> None:
    """vLLM generates once for each beam and token, each time with the prompt, and with `length` at the end."""
    body = {**BODY, "stream": False, "use_beam_search": True, "n": 2, "ignore_eos": False}
    reply = endpoint.client.post(ROUTE, json=body, headers={"X-Amzn-SageMaker-Inference-Id": "beams"}).json()
    endpoint.until(lambda: any(line.get("inference_id") == "beams" for line in events(endpoint, "request_end")), 10)
    (end,) = [line for line in events(endpoint, "request_end") if line.get("inference_id") == "beams"]
    usage, reasons = reply["usage"], {choice["finish_reason"] for choice in reply["choices"]}
    assert (end["prompt_tokens"], end["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert end["end"] in reasons


# What vLLM's serving classes answer, and the sequences of each.
FULL: list[tuple[str, dict[str, Any], int]] = [
    (ROUTE, {**BODY, "logprobs": 1}, 1),
    (ROUTE, {**BODY, "logprobs": 1, "stream": False}, 1),
    (ROUTE, {**BODY, "n": 3, "temperature": 1, "stream": False}, 3),
    (ROUTE, {**BODY, "n": 3, "temperature": 1}, 3),
    (ROUTE, {**BODY, "prompt": [BODY["prompt"]] * 2}, 2),
]


@pytest.mark.parametrize(("route", "body", "sequences"), FULL)
def test_tokens_of_the_full_path_are_counted(
    endpoint: ServeProcess, route: str, body: dict[str, Any], sequences: int
) -> None:
    def tokens() -> tuple[float, ...]:
        found = figures(endpoint)
        names = ("endpoint_prompt_tokens_total", "endpoint_output_tokens_total")
        return tuple(found.get((name, route), 0) for name in names)

    before = tokens()
    # What the reply itself says, of prompts as well.
    if body["stream"]:
        reply = endpoint.client.post(route, json={**body, "stream_options": {"include_usage": True}})
        usage = json.loads(reply.text.split("data: ")[-2])["usage"]
    else:
        usage = endpoint.client.post(route, json=body).json()["usage"]
    assert usage["completion_tokens"] == sequences * TOKENS
    endpoint.until(lambda: tokens() != before, 10)
    assert [now - then for now, then in zip(tokens(), before, strict=True)] == [
        usage["prompt_tokens"],
        usage["completion_tokens"],
    ]


def test_the_stages_of_the_start_are_events(endpoint: ServeProcess) -> None:
    stages = {line["stage"]: line["seconds"] for line in events(endpoint, "stage")}
    assert {"fetch model", "import vLLM", "start engine", "warm up"} <= set(stages)
    (ready,) = events(endpoint, "ready")
    assert ready["since_start_seconds"] >= stages["start engine"]
