"""What the engine gets is checked, whatever a body looked like: values, and products of counts."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine.generation.request_cost import (
    NUMBERS,
    TOKEN_IDS,
    CostLimits,
    EngineInput,
    RequestCost,
    check_values,
)
from handler.errors import InvalidField

VOCABULARY = 512
LIMITS = CostLimits.of(EndpointConfig())


def parameters(**given: Any) -> Any:
    plain = {"n": 1, "max_tokens": 16, "stop": [], "bad_words": None, "logprobs": None, "prompt_logprobs": None}
    return SimpleNamespace(**{**plain, **given})


def prompt(ids: Any = (1, 2), salt: str = "", whole: bool = True, **given: Any) -> EngineInput:
    return EngineInput(ids, salt, parameters(**given), whole, VOCABULARY)


@pytest.mark.parametrize("ids", [[5, -9], [-7, 1], [VOCABULARY], [1.0], [True, 2], ["3"], [2**70], [None]])
def test_a_token_id_that_the_model_does_not_have_is_named(ids: Any) -> None:
    with pytest.raises(InvalidField, match="prompt"):
        check_values(prompt(ids), VOCABULARY - 1)
    for field in TOKEN_IDS:
        values: Any = dict.fromkeys(ids, 1.0) if field == "logit_bias" else ids
        with pytest.raises(InvalidField, match=field):
            check_values(prompt(**{field: values}), VOCABULARY - 1)


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_that_the_engine_cannot_store_is_named(field: str) -> None:
    values: list[Any] = [float("nan"), float("inf"), -float("inf"), NUMBERS[field], 10**400, -(10**400)]
    for value in values:
        with pytest.raises(InvalidField, match=field):
            check_values(prompt(**{field: value}), VOCABULARY - 1)
    right: dict[str, Any] = {field: 1}
    check_values(prompt(**right), VOCABULARY - 1)


def test_values_that_pass_are_such_as_the_engine_has() -> None:
    """Random lists of anything: what passes is a list of token ids."""
    draw = random.Random(35)
    pool = [0, 1, VOCABULARY - 1, VOCABULARY, -1, True, None, "1", 1.0, 2**64, float("nan")]
    passed = 0
    for _ in range(3000):
        ids = [draw.choice(pool[: draw.randint(1, len(pool))]) for _ in range(draw.randint(1, 4))]
        try:
            check_values(prompt(ids), VOCABULARY - 1)
        except InvalidField:
            continue
        passed += 1
        assert all(type(token) is int and 0 <= token < VOCABULARY for token in ids)
    assert passed > 100


@pytest.mark.parametrize(
    ("given", "field", "setting"),
    [
        ({"n": 129}, "n", "MAX_SEQUENCES"),
        ({"n": 64, "max_tokens": 300, "logprobs": 20}, "logprobs", "MAX_REPLY_LOGPROBS"),
        ({"n": 16, "max_tokens": 900, "logprobs": 20}, "logprobs", "MAX_REPLY_LOGPROBS"),
        ({"logprobs": -1, "max_tokens": 900}, "logprobs", "MAX_REPLY_LOGPROBS"),
        ({"ids": [1] * 13_000, "prompt_logprobs": 20}, "prompt_logprobs", "MAX_REPLY_LOGPROBS"),
        ({"n": 64, "salt": "x" * 25_000_000}, "cache_salt", "MAX_COPIED_BYTES"),
        ({"n": 64, "allowed_token_ids": [1] * 262_000}, "allowed_token_ids", "MAX_COPIED_BYTES"),
        ({"n": 64, "logit_bias": dict.fromkeys(range(200_000), 1.0)}, "logit_bias", "MAX_COPIED_BYTES"),
        ({"n": 128, "stop": ["x" * 300_000]}, "stop", "MAX_COPIED_BYTES"),
        ({"n": 64, "extra_args": {"a": {"b": ["x" * 25_000_000]}}}, "vllm_xargs", "MAX_COPIED_BYTES"),
        ({"n": 64, "extra_args": {"kv_transfer_params": "x" * 25_000_000}}, "kv_transfer_params", "MAX_COPIED_BYTES"),
        ({"max_tokens": 100, "logprob_token_ids": [1] * 90_000}, "logprob_token_ids", "MAX_REPLY_LOGPROBS"),
    ],
)
def test_a_product_that_is_too_large_names_its_field_and_the_setting(
    given: dict[str, Any], field: str, setting: str
) -> None:
    with pytest.raises(InvalidField, match=f"{field}.*ENDPOINT_{setting}"):
        LIMITS.charge(prompt(**given), RequestCost())


# Fields of vLLM's parameters that may be large, but not by a request: a grammar has a bound of its own, and the API has
# none of the others.
NOT_COPIED = {"structured_outputs", "logits_processors", "trace_decode_token_ids"}
LARGE: dict[str, Any] = {"int": [1] * 300_000, "str": ["x" * 25_000_000], "dict": {"a": "x" * 25_000_000}}


@pytest.mark.slow
def test_every_field_of_vllms_parameters_that_may_be_large_is_counted() -> None:
    from vllm.sampling_params import SamplingParams

    hints = {name: str(hint) for name, hint in get_type_hints(SamplingParams).items() if not name.startswith("_")}
    large = {name: hint for name, hint in hints.items() if re.search(r"\b(list|dict|str|Any)\b", hint)}
    assert {*TOKEN_IDS, "stop", "bad_words", "extra_args"} - large.keys() <= {"logprob_token_ids"}, "of vLLM 0.24"
    for name in large.keys() - NOT_COPIED:
        kind = next(kind for kind in ("dict[str", "str", "int") if kind in large[name]).partition("[")[0]
        with pytest.raises(InvalidField, match="ENDPOINT_MAX_COPIED_BYTES"):
            LIMITS.charge(prompt(n=64, **{name: LARGE[kind]}), RequestCost())


@pytest.mark.parametrize(
    "given",
    [
        {"n": 128, "max_tokens": 4096},
        {"n": 64, "max_tokens": 300, "logprobs": 20, "whole": False},
        {"ids": [1] * 131_000, "prompt_logprobs": 1},
        {"n": 16, "ids": [1] * 131_000},
        {"salt": "x" * 25_000_000},
    ],
)
def test_what_a_client_may_need_passes(given: dict[str, Any]) -> None:
    LIMITS.charge(prompt(**given), RequestCost())


def test_the_prompts_of_a_request_add_up_and_the_steps_of_a_beam_search_do_not() -> None:
    cost, search = RequestCost(), RequestCost(searching=True)
    for place in range(200):
        LIMITS.charge(prompt(), search)
        if place < 128:
            LIMITS.charge(prompt(), cost)
    with pytest.raises(InvalidField, match="129 sequences"):
        LIMITS.charge(prompt(), cost)


def test_a_request_without_a_number_of_tokens_gets_as_many_as_fit() -> None:
    given = prompt(max_tokens=100_000, logprobs=20, n=2)
    LIMITS.charge(given, RequestCost(open_ended=True))
    assert given.parameters.max_tokens == 2**18 // 42
    with pytest.raises(InvalidField):
        LIMITS.charge(prompt(max_tokens=100_000, logprobs=20, n=2), RequestCost())
    cost = RequestCost(open_ended=True, prompts=3)
    shares = [prompt(ids=[1] * length, max_tokens=131_000, logprobs=0) for length in (2, 2, 5)]
    for each in shares:
        LIMITS.charge(each, cost)
    assert [each.parameters.max_tokens for each in shares] == [2**18 // 3] * 2 + [2**18 // 3 + 1]
    chosen = prompt(max_tokens=100_000, logprob_token_ids=[1] * 99)
    LIMITS.charge(chosen, RequestCost(open_ended=True))
    assert chosen.parameters.max_tokens == 2**18 // 100
    plain = prompt(max_tokens=100_000)
    LIMITS.charge(plain, RequestCost(open_ended=True))
    assert plain.parameters.max_tokens == 100_000
