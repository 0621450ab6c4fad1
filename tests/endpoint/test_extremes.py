"""No single request ends the engine: valid bodies with extreme values, in one batch with an ordinary request."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

INT64 = 2**63 - 1
EXTREMES: list[dict[str, object]] = [
    {"temperature": 1e-300},
    {"temperature": 1e300},
    {"temperature": 5e-324, "top_p": 5e-324, "min_p": 1},
    {"temperature": 2, "top_k": 2**31 - 1},
    {"temperature": 1, "top_k": 1_000_000, "top_p": 0.5},
    {"temperature": 1, "top_k": -1},
    {"temperature": 1, "top_p": 1e-12},
    {"repetition_penalty": 1e-300},
    {"repetition_penalty": 1e300},
    {"repetition_penalty": 1e39, "temperature": 1},
    {"repetition_penalty": 5e-324, "temperature": 1, "frequency_penalty": 2, "presence_penalty": -2},
    {"seed": INT64, "temperature": 1},
    {"seed": -INT64 - 1, "temperature": 1},
    {"seed": 0, "temperature": 1},
    {"stop_token_ids": [INT64]},
    {"stop_token_ids": [10_000_000], "min_tokens": 3},
    {"stop_token_ids": [2**31], "min_tokens": 3},
    {"stop_token_ids": list(range(1200)), "min_tokens": 2},
    {"min_tokens": 8, "max_tokens": 8, "ignore_eos": True},
    {"min_tokens": INT64},
    {"stop": ["\u0000", "\U0010ffff", " "]},
    {"stop": ["x" * 100_000]},
    {"stop": [str(number) for number in range(5000)]},
    {"skip_special_tokens": False, "include_stop_str_in_output": True, "stop": ["a"]},
    {"add_special_tokens": False},
    {"prompt": [0]},
    {"prompt": [1279] * 1000},
    {"prompt": list(range(1015))},
    {"prompt": "\u0000\u0001\ufffe\U0010ffff"},
    {"prompt": "a" * 900},
    {"prompt": "<|end|><|user|><|assistant|>" * 50},
    {"max_tokens": 1, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"logit_bias": {"999999999": 100}},
    {"logprobs": 100_000},
    {"prompt_logprobs": -1},
    {"allowed_token_ids": [99_999_999]},
    {"bad_words": ["", " "]},
    {"n": 10_000},
    {"best_of": 10_000},
    {"truncate_prompt_tokens": -5},
    {"structured_outputs": {"grammar": "root ::="}},
    {"structured_outputs": {"regex": "((((a+)+)+)+)+$"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#"}}}},
    {"priority": 2**70},
    {"kv_transfer_params": {"do_remote_prefill": True}},
    {"vllm_xargs": {"kv_transfer_params": 1}},
]


def test_extremes_are_answered_or_refused_and_the_engine_goes_on(endpoint: ServeProcess) -> None:
    before = endpoint.engine_pids()
    question = {"messages": [{"role": "user", "content": by_name("ping").questions[0]}], "temperature": 0}

    def extreme(fields: dict[str, object]) -> tuple[dict[str, object], int, str]:
        body = {"prompt": "Question: Who are you?\nAnswer:", "max_tokens": 8, **fields}
        reply = endpoint.client.post("/invocations", json=body)
        return fields, reply.status_code, reply.text

    def ordinary(_: int) -> str:
        reply = endpoint.client.post("/invocations", json=question).json()
        text: str = reply["choices"][0]["message"]["content"]
        return text

    with ThreadPoolExecutor(12) as pool:
        ordinaries = [pool.submit(ordinary, number) for number in range(24)]
        outcomes = list(pool.map(extreme, EXTREMES))
        answers = {future.result() for future in ordinaries}
    assert [outcome for outcome in outcomes if outcome[1] not in {200, 400}] == []
    assert answers == {by_name("ping").answer}
    assert endpoint.ping() == (200, "")
    assert endpoint.engine_pids() == before
    assert endpoint.metric("endpoint_requests_in_engine") == 0


def test_a_thousand_at_once_are_all_answered(endpoint: ServeProcess) -> None:
    body = b'{"prompt": "a", "max_tokens": 2, "temperature": 0}'
    head = b"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(request)
        reply = await reader.read()
        writer.close()
        return reply[:15]

    async def flood() -> list[bytes]:
        async with asyncio.timeout(60):
            return await asyncio.gather(*(ask() for _ in range(1000)))

    assert asyncio.run(flood()) == [b"HTTP/1.1 200 OK"] * 1000
    assert endpoint.ping() == (200, "")
