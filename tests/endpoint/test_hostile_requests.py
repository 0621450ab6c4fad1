"""Small requests that would end the engine, hold everybody up or take every slot: one is refused, the others wait."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import version

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
LONG = {"prompt": "a", "max_tokens": 900, "ignore_eos": True}


@pytest.fixture
def same_core(endpoint: ServeProcess) -> Iterator[None]:
    """The engine's core is the same after the test as before it."""
    before = endpoint.engine_pids()
    yield
    assert endpoint.engine_pids() == before
    assert endpoint.ping() == (200, "")


@pytest.mark.usefixtures("same_core")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [5, "-9"], "n": 2, "max_tokens": 1}),
        ("/v1/completions", {"prompt": [[1], [-7, True]], "max_tokens": 1}),
        ("/v1/completions", {"prompt": [[1, 2], [-3, 1.0]], "max_tokens": 1}),
        ("/v1/completions", {"prompt": [[1, 2], ["99999999", 1]], "max_tokens": 1, "stream": True}),
        ("/invocations", {"prompt": [7, "-8"], "max_tokens": 1, "logprobs": 1}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "allowed_token_ids": ["-5"]}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "n": 2, "stop_token_ids": [-5]}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "logit_bias": {"99999999": 1}}),
        ("/detokenize", {"tokens": [1, "-9"]}),
    ],
)
def test_token_ids_are_checked_as_the_engine_gets_them(endpoint: ServeProcess, path: str, body: dict[str, Any]) -> None:
    reply = endpoint.client.post(path, json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].partition("[")[0] in body


@pytest.mark.usefixtures("same_core")
def test_whatever_is_put_in_place_of_a_value_no_request_ends_the_engine(endpoint: ServeProcess) -> None:
    """Random bodies in which numbers are texts, booleans or nothing, and lists are single values, and the reverse."""
    draw = random.Random(35)
    numbers: list[Any] = [1, 0, -1, "1", "-9", "nan", True, None, 1.0, -1.5, 2**40, "9" * 400, [], [1], {}]
    fields = ("max_tokens", "n", "temperature", "top_p", "top_k", "min_p", "seed", "min_tokens", "logprobs")
    lists = ("stop_token_ids", "allowed_token_ids", "stop", "bad_words")
    for _ in range(300):
        body: dict[str, Any] = {name: draw.choice(numbers) for name in draw.sample(fields, draw.randint(0, 4))}
        body |= {name: [draw.choice(numbers)] for name in draw.sample(lists, draw.randint(0, 2))}
        path = draw.choice(("/invocations", "/v1/completions", "/v1/chat/completions", "/v1/responses"))
        if "chat" in path:
            body |= CHAT
        elif "responses" in path:
            body |= {"input": draw.choice(("a", [], ["a"], [1])), "max_output_tokens": draw.choice((4, "4", True))}
        else:
            ids = [draw.choice(numbers) for _ in range(draw.randint(1, 3))]
            body["prompt"] = draw.choice((ids, [ids, [1]], "a", ids[0]))
        body.setdefault("max_tokens", 4)
        body["stream"] = draw.choice((False, False, True, "true"))
        reply = endpoint.client.post(path, json=body)
        assert reply.status_code in (200, 400, 404, 422), (path, body, reply.text)


@pytest.mark.usefixtures("same_core")
@pytest.mark.parametrize(
    ("body", "field", "setting"),
    [
        ({**CHAT, "n": 64, "max_tokens": 300, "logprobs": True, "top_logprobs": 20}, "logprobs", "MAX_REPLY_LOGPROBS"),
        ({"prompt": [[5] * 1000] * 40, "max_tokens": 1, "echo": True, "logprobs": 20}, "echo", "MAX_REPLY_LOGPROBS"),
        ({"prompt": "a", "n": 64, "vllm_xargs": {"a": "x" * 24_000_000}}, "vllm_xargs", "MAX_COPIED_BYTES"),
        ({"prompt": "a", "n": 64, "kv_transfer_params": {"a": [{"b": "x" * 24_000_000}]}}, "kv_tr", "MAX_COPIED_BYTES"),
        ({"prompt": "a", "n": 64, "allowed_token_ids": [1] * 262_000}, "allowed_token_ids", "MAX_COPIED_BYTES"),
    ],
)
def test_a_product_beyond_its_bound_names_the_field_and_the_setting(
    endpoint: ServeProcess, body: dict[str, Any], field: str, setting: str
) -> None:
    reply = endpoint.client.post("/invocations", json=body)
    assert reply.status_code == 400, reply.text
    assert f"ENDPOINT_{setting}" in reply.json()["error"]["message"]
    assert field in reply.json()["error"]["message"]


def chat(endpoint: ServeProcess) -> int:
    return endpoint.client.post("/invocations", json={**CHAT, "max_tokens": 3}).status_code


@pytest.mark.parametrize("kind", ["n", "prompts", "lines", "lines with n"])
def test_a_request_with_many_sequences_leaves_slots_to_others(endpoint: ServeProcess, kind: str) -> None:
    """A chat of three tokens, begun after the flood, ends before it."""
    flood: dict[str, Any] = {**LONG, "max_tokens": 150}
    headers = {"Content-Type": "application/json"}
    match kind:
        case "n":
            content = json.dumps({**flood, "n": 64})
        case "prompts":
            content = json.dumps({**flood, "prompt": [[5 + place] * 600 for place in range(64)]})
        case _:
            headers = {"Content-Type": "application/jsonlines"}
            line = {**flood, "n": 16} if kind == "lines with n" else flood
            content = "\n".join(json.dumps(line) for _ in range(40))
    with ThreadPoolExecutor(1) as pool:
        flooding: Future[Any] = pool.submit(endpoint.client.post, "/invocations", content=content, headers=headers)
        endpoint.until(lambda: endpoint.metric("endpoint_requests_in_engine") >= 16, 60)
        for _ in range(5):
            assert chat(endpoint) == 200
            assert not flooding.done(), "the chat has waited for the flood"
        assert flooding.result().status_code in (200, 504)  # a slow machine cuts it at SageMaker's minute


@pytest.mark.usefixtures("same_core")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 2},
        {"logprobs": 3},
        {"prompt_logprobs": 1},
        {"min_tokens": 2},
        {"min_p": 0.1, "top_k": 5, "top_p": 0.9},
        {"logit_bias": {"5": 3.0}},
        {"allowed_token_ids": [5, 6, 7]},
        {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.3},
        {"structured_outputs": {"regex": "[0-9]{2}"}},
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
@pytest.mark.parametrize("seed", [None, 7])
def test_prompts_are_computed_in_several_steps(
    endpoint: ServeProcess, fields: dict[str, Any], seed: int | None
) -> None:
    """A step has room for two of these prompts and a part of the third."""
    salt = json.dumps([fields, seed])  # no prompt is cached
    prompts = [[3 + (place * number + len(salt)) % 200 for place in range(900)] for number in range(1, 12)]
    body = {"prompt": prompts, "seed": seed, "cache_salt": salt, "temperature": 1.0, "max_tokens": 2, **fields}
    reply = endpoint.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text


def test_a_seed_counts_beside_requests_without_one(endpoint: ServeProcess) -> None:
    seeded = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 1.5, "seed": 7, "ignore_eos": True}

    def text() -> str:
        return str(endpoint.client.post("/v1/completions", json=seeded).json()["choices"][0]["text"])

    ended = threading.Event()

    def others() -> None:
        while not ended.is_set():
            assert endpoint.client.post("/v1/completions", json=LONG).status_code == 200

    alone = {text() for _ in range(2)}
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(others) for _ in range(3)]
        try:
            endpoint.until(lambda: endpoint.metric("endpoint_requests_in_engine") == 3, 60)
            beside = {text() for _ in range(3)}
        finally:
            ended.set()
        for other in running:
            other.result()
    assert alone == beside
    assert len(alone) == 1


def test_the_tokens_that_a_request_allows_are_its_own(endpoint: ServeProcess) -> None:
    """Until 0.32.0, vLLM leaves their mask behind for the next request, or copies another's over it."""
    plain = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    limited = {"prompt": "One two", "max_tokens": 400, "ignore_eos": True, "allowed_token_ids": [23, 711]}

    def text(body: dict[str, Any]) -> str:
        reply = endpoint.client.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return str(reply.json()["choices"][0]["text"])

    def in_engine(number: int) -> None:
        endpoint.until(lambda: endpoint.metric("endpoint_requests_in_engine") == number, 60)

    alone = text(plain)
    with ThreadPoolExecutor(4) as pool:
        before = pool.submit(text, {**plain, "max_tokens": 60, "ignore_eos": True})
        in_engine(1)
        running = pool.submit(text, limited)
        in_engine(2)
        before.result()  # its place goes to the limited one, whose place goes to the next
        beside = {text(plain), *pool.map(text, [plain] * 6)}
        tokens = running.result()
    assert beside == {alone}
    assert set(tokens) == set("329"), "two tokens: 3 and 29"


def test_a_large_reply_with_log_probabilities_is_what_its_stream_is(endpoint: ServeProcess) -> None:
    """The whole reply is built in a thread and encoded in pieces."""
    body = {**CHAT, "max_tokens": 200, "ignore_eos": True, "logprobs": True, "top_logprobs": 10, "temperature": 0}
    whole = endpoint.client.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]["content"]
    assert len(whole) == 200
    streamed: list[Any] = []
    with endpoint.client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                streamed += (choice.get("logprobs") or {}).get("content") or []
    # Beside a tool parser, vLLM 0.29 has no event for a token without text (chat_completion/serving.py).
    end = None if version() == "0.16.0" else "<|end|>"
    tokens = [[entry["token"] for entry in entries if entry["token"] != end] for entries in (streamed, whole)]
    assert tokens[0] == tokens[1]
    assert [len(entry["top_logprobs"]) for entry in whole] == [10] * 200


@pytest.mark.skipif(version() != "0.16.0", reason="vLLM 0.16.0 gives prompt_logprobs in this form")
def test_the_log_probabilities_of_a_long_prompt(endpoint: ServeProcess) -> None:
    ids = [5 + place % 400 for place in range(900)]
    body = {"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 3}
    scores = endpoint.client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    short = endpoint.client.post("/v1/completions", json={**body, "prompt": ids[:40]}).json()["choices"][0]["logprobs"]
    assert len(scores["tokens"]) == 901
    assert scores["tokens"][:40] == short["tokens"][:40]
    assert scores["token_logprobs"][1:40] == pytest.approx(short["token_logprobs"][1:40], abs=0.05)
