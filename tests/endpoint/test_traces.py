"""Traces of a real engine behind a real server: our spans, and vLLM's own beneath them."""

from __future__ import annotations

import secrets

import pytest

from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import has_token_path
from tests.otlp_receiver import Receiver

pytestmark = pytest.mark.engine

PROMPT = "What does /ping mean?"
BODY = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
PARENT = "00f067aa0ba902b7"


@pytest.mark.skipif(not has_token_path(), reason="the direct token path tells the stages")
@pytest.mark.parametrize("stream", [False, True])
def test_the_stages_of_a_request_in_the_engine(endpoint: ServeProcess, otlp: Receiver, stream: bool) -> None:
    trace = secrets.token_hex(16)
    headers = {"X-Amzn-SageMaker-Custom-Attributes": f"traceparent=00-{trace}-{PARENT}-01"}
    assert endpoint.client.post("/invocations", json={**BODY, "stream": stream}, headers=headers).status_code == 200

    spans = {span.name: span for span in otlp.spans(trace, 5)}
    request = spans["POST /invocations"]
    assert request.parent == PARENT
    assert request.attributes["gen_ai.usage.output_tokens"] == 8
    assert request.attributes["gen_ai.response.finish_reasons"] == ["length"]
    queue, prefill, decode = (spans[name] for name in ("queue", "prefill", "decode"))
    assert request.begin <= queue.begin <= queue.end == prefill.begin < prefill.end == decode.begin < decode.end
    assert decode.end <= request.end
    assert {stage.parent for stage in (queue, prefill, decode)} == {request.span}
    assert PROMPT not in str(spans)

    own = spans["llm_request"]  # vLLM's
    assert own.parent == request.span
    assert own.attributes["gen_ai.usage.completion_tokens"] == 8


def test_vllms_span_of_the_full_path_is_beneath_ours(endpoint: ServeProcess, otlp: Receiver) -> None:
    trace = secrets.token_hex(16)
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "ignore_eos": True, "logprobs": True}
    headers = {"traceparent": f"00-{trace}-{PARENT}-01"}
    assert endpoint.client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    spans = {span.name: span for span in otlp.spans(trace, 2)}
    request = spans["POST /v1/chat/completions"]
    assert request.attributes["gen_ai.operation.name"] == "chat"
    assert request.attributes["gen_ai.usage.output_tokens"] == 3
    assert request.attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert request.attributes["gen_ai.response.model"] == "sample"
    assert spans["llm_request"].parent == request.span
