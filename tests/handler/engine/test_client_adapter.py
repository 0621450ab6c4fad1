"""What an adapter makes of a generation for vLLM, and of vLLM's errors. No engine is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")
from handler.engine.engine_client.client_adapter import SAMPLING_DEFAULTS, ClientAdapter
from handler.engine.engine_client.client_error import client_error
from handler.engine.engine_client.client_queue import ClientQueue
from handler.engine.generation.generation import Generation, Grammar, Sampling, Score
from handler.engine.generation.request_cost import COST, RequestCost
from handler.engine.queue_limits import QueueLimits
from handler.errors import EngineBusy, InvalidField

pytestmark = pytest.mark.engine


class PlainAdapter(ClientAdapter):
    """An adapter of a model with its own defaults, without a client."""

    dead = ()

    def __init__(self, **own: float) -> None:
        self.facts: Any = SimpleNamespace(sampling_defaults={**SAMPLING_DEFAULTS, **own}, grammars=False)


def test_a_parameter_that_is_not_given_is_the_models_own() -> None:
    """vLLM 0.32 and later read the last two of generation_config.json, too."""
    own = {"top_p": 0.5, "presence_penalty": 0.5, "frequency_penalty": -0.5}
    adapter = PlainAdapter(**own)
    for given, expected in (
        (Sampling(), own),
        (Sampling(top_p=1, presence_penalty=0), {**own, "top_p": 1, "presence_penalty": 0}),
    ):
        params = adapter.sampling_params(given, 9, False)
        assert {name: getattr(params, name) for name in own} == expected
    plain = PlainAdapter().sampling_params(Sampling(), 9, False)
    assert (plain.presence_penalty, plain.frequency_penalty, plain.repetition_penalty) == (0, 0, 1)


class FailingClient:
    """Ends each request with an error, and keeps the cost that the request was given."""

    def __init__(self, error: Exception) -> None:
        self.error, self.cost = error, COST.get()

    async def generate(self, *arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        self.cost = COST.get()
        raise self.error
        yield


def failure(client: FailingClient, sampling: Sampling, **names: str) -> Any:
    """What the sink of a request is told."""
    adapter, heard = PlainAdapter(), list[Any]()
    adapter._generate = client.generate
    generation = Generation("r", [1], sampling, stream=False, names=names)
    sink: Any = SimpleNamespace(fail=heard.append)
    asyncio.run(adapter._run(generation, {}, adapter.sampling_params(Sampling(), 9, False), sink, None))
    (error,) = heard
    assert isinstance(error, InvalidField)
    return error


@pytest.mark.parametrize(
    ("error", "field", "problem"),
    [
        (client_error("logprobs: 300 are too many", "logprobs"), "parameters.details", "300 are too many"),
        (client_error("echo: 300 are too many", "echo"), "parameters.prefill", "300 are too many"),
        (client_error("seed: it is odd", "seed"), "seed", "it is odd"),
        (client_error("Invalid grammar", "structured_outputs"), "parameters.grammar", "Invalid grammar"),
        (ValueError("Invalid grammar"), "parameters.grammar", "Invalid grammar"),
    ],
)
def test_an_error_names_the_field_of_the_body_and_the_grammar_only_for_its_own(
    error: Exception, field: str, problem: str
) -> None:
    grammar = Grammar("regex", "a", "parameters.grammar")
    heard = failure(
        FailingClient(error), Sampling(grammar=grammar), logprobs="parameters.details", echo="parameters.prefill"
    )
    assert (heard.param, heard.problem) == (field, problem)


def test_what_vllm_would_have_tried_again_is_a_503() -> None:
    """`QueueOverflowError` of 0.29 and `RetryableRequestError` of 0.32."""
    for name in ("http_status", "status_code"):
        error = RuntimeError("busy")
        setattr(error, name, HTTPStatus.SERVICE_UNAVAILABLE)
        assert isinstance(PlainAdapter().as_endpoint_error(error), EngineBusy)


def test_a_request_without_a_number_of_tokens_is_open_ended_unless_it_is_part_of_another() -> None:
    client = FailingClient(ValueError("a"))
    for tokens in (None, 9):
        failure(client, Sampling(max_tokens=tokens))
        assert client.cost is not None
        assert client.cost.open_ended is (tokens is None)
    shared = RequestCost()
    outer = COST.set(shared)
    failure(client, Sampling())
    COST.reset(outer)
    assert client.cost is shared


@pytest.mark.parametrize("by_name", [False, True])
def test_a_call_gets_what_its_caller_gave_by_place_or_by_name(by_name: bool) -> None:
    """vLLM 0.24's pooling gives its first two arguments by place, and 0.29's by name."""
    given: list[Any] = []

    async def encode(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        given.append((arguments, named))
        yield "pooled"

    async def called() -> list[Any]:
        client: Any = SimpleNamespace(generate=encode, encode=encode)
        gate: Any = SimpleNamespace(check=lambda *_: False)
        ClientQueue(client, QueueLimits(2, 1, 0), gate, ())
        pooled = {"request_id": "r", "pooling_params": "p", "prompt": {"prompt_token_ids": [1]}}
        call = client.encode(**pooled) if by_name else client.encode(pooled["prompt"], "p", "r")
        return [output async for output in call]

    assert asyncio.run(called()) == ["pooled"]
    expected = {"request_id": "r", "pooling_params": "p", "prompt": {"prompt_token_ids": [1]}}
    assert given == [((), expected) if by_name else (({"prompt_token_ids": [1]}, "p", "r"), {})]


class Entries(list[Any]):
    """vLLM's entries, which note that they are read."""

    read = False

    def __getitem__(self, place: Any) -> Any:
        self.read = True
        return super().__getitem__(place)


def entry(token: int, *others: int) -> dict[int, Any]:
    return {each: SimpleNamespace(logprob=-each, decoded_token=None) for each in (token, *others)}


def test_the_loop_makes_no_scores_of_a_whole_reply() -> None:
    """Those of 262,144 entries took seconds. The thread that builds the reply makes them."""
    entries, prompt, received = Entries([entry(5, 6), entry(7)]), Entries([None, entry(8)]), list[Any]()
    completion = SimpleNamespace(text="a", token_ids=[5, 7], logprobs=entries, finish_reason="stop", stop_reason=None)
    output: Any = SimpleNamespace(outputs=[completion], prompt_logprobs=prompt)
    sink: Any = SimpleNamespace(push=lambda *pushed: received.append(pushed))
    generation = Generation(
        "r", [1], Sampling(), stream=False, scores=lambda tokens, of_prompt: received.append((tokens, of_prompt))
    )
    PlainAdapter()._push(output, generation, sink)
    (tokens, of_prompt), pushed = received
    assert pushed == ("a", [5, 7], "stop", None)
    assert not entries.read
    assert not prompt.read
    assert [*tokens] == [[Score(5, -5, ""), Score(6, -6, "")], [Score(7, -7, "")]]
    assert [*of_prompt] == [None, [Score(8, -8, "")]]
    assert (len(tokens), tokens[1][0].token_id, len(of_prompt)) == (2, 7, 2)
