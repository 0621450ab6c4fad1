"""Long prompts and token budgets over the stand-in: a 400 or a clean end, where the plugin's engine would die.

One engine, compiled for prompts of 256 tokens and sequences of 512, that speculates 4 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.endpoint.neuron_fleet import ANSWER, NXDI, QUESTION, Fleet
from tests.endpoint.serve_process import ServeProcess

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

PROMPT, SEQUENCE = 256, 512 - 4


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    fleet = Fleet(tmp_path_factory.mktemp("lengths"), NXDI, "lengths")
    starting = fleet.serve(
        "one",
        SM_VLLM_MAX_MODEL_LEN="1024",
        ENDPOINT_CONTEXT_ENCODING_BUCKETS="128,256",
        ENDPOINT_TOKEN_GENERATION_BUCKETS="256,512",
        ENDPOINT_SPECULATION="draft_model",
        ENDPOINT_SPECULATIVE_MODEL=str(fleet.draft()),
        ENDPOINT_NUM_SPECULATIVE_TOKENS="4",
    )
    try:
        with starting.serving() as process:
            yield process
    finally:
        fleet.close()


def ask(served: ServeProcess, tokens: int, **body: Any) -> tuple[int, dict[str, Any]]:
    """A completion of a prompt of so many tokens; afterwards the engine must still be there."""
    reply = served.client.post("/v1/completions", json={"prompt": [5] * tokens, "ignore_eos": True, **body})
    assert served.ping()[0] == 200, served.log[-2000:]
    return reply.status_code, reply.json()


def test_a_prompt_may_have_as_much_as_the_largest_bucket_and_no_more(served: ServeProcess) -> None:
    assert ask(served, PROMPT, max_tokens=2)[0] == 200
    status, body = ask(served, PROMPT + 1, max_tokens=2)
    assert (status, body["error"]["param"], body["error"]["code"]) == (400, "prompt", "context_length_exceeded")
    assert f"compiled for prompts of {PROMPT}" in body["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", [SEQUENCE, 1023, 1024, 5000])
def test_longer_ones_are_refused_before_anything_is_sent(served: ServeProcess, tokens: int, stream: bool) -> None:
    assert ask(served, tokens, stream=stream)[0] == 400


def test_what_vllms_serving_classes_serve_has_the_same_limits(served: ServeProcess) -> None:
    """Several prompts are one of the things that go their way."""
    body = {"prompt": [[5] * PROMPT, [5] * 3], "max_tokens": 2, "ignore_eos": True}
    assert served.client.post("/v1/completions", json=body).status_code == 200
    body["prompt"] = [[5] * 3, [5] * (PROMPT + 1)]
    reply = served.client.post("/v1/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    body = {"prompt": [[5] * 200, [5] * 3], "max_tokens": SEQUENCE - 199, "ignore_eos": True}
    assert served.client.post("/v1/completions", json=body).status_code == 400
    assert served.ping()[0] == 200, served.log[-2000:]


def test_prompt_and_answer_may_fill_the_largest_bucket_less_what_is_speculated(served: ServeProcess) -> None:
    status, body = ask(served, 200, max_tokens=SEQUENCE - 200)
    assert status == 200
    assert body["usage"]["total_tokens"] == SEQUENCE
    assert body["choices"][0]["finish_reason"] == "length"
    status, body = ask(served, 200, max_tokens=SEQUENCE - 199)
    assert (status, body["error"]["param"]) == (400, "max_tokens")
    assert f"'max_tokens' to {SEQUENCE - 200}" in body["error"]["message"]


def test_without_max_tokens_an_answer_ends_by_length_where_the_graphs_do(served: ServeProcess) -> None:
    """A chat without max_tokens has all the room there is."""
    question = {**QUESTION, "ignore_eos": True}
    body = served.client.post("/v1/chat/completions", json=question).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == SEQUENCE
    assert body["choices"][0]["message"]["content"].startswith(ANSWER)
    assert served.ping()[0] == 200


def test_the_list_of_models_tells_the_length_that_is_served(served: ServeProcess) -> None:
    assert served.client.get("/v1/models").json()["data"][0]["max_model_len"] == SEQUENCE
