"""What one request may ask of the engine, and how many tokens one that does not say may have."""

from __future__ import annotations

from typing import Any

import pytest

from handler.engine.generation.generation import Generation, Grammar, Sampling
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import InvalidField, PromptOverLimit, PromptTooLong

CONTEXT, VOCAB = 20, 300
LIMITS = RequestLimits(CONTEXT, VOCAB)


def asked(limits: RequestLimits, prompt: int = 3, **sampling: Any) -> int:
    return limits.check(Generation("r", [1] * prompt, Sampling(**sampling), stream=True))


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "given"),
    [(3, None, CONTEXT - 3), (3, 5, 5), (3, CONTEXT - 3, CONTEXT - 3), (CONTEXT - 1, None, 1)],
)
def test_the_answer_fits_the_context(prompt: int, max_tokens: int | None, given: int) -> None:
    assert asked(LIMITS, prompt, max_tokens=max_tokens) == given


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        (RequestLimits(CONTEXT, VOCAB, default_output=4), 4),
        (RequestLimits(CONTEXT, VOCAB, max_output=5), 5),
        (RequestLimits(CONTEXT, VOCAB, max_output=5, default_output=4), 4),
        (RequestLimits(CONTEXT, VOCAB, max_output=3, default_output=4), 3),
        (RequestLimits(CONTEXT, VOCAB, default_output=100), CONTEXT - 3),
    ],
)
def test_a_request_that_does_not_say_has_the_least_of_all_caps(limits: RequestLimits, given: int) -> None:
    assert asked(limits) == given


def test_the_models_own_cap_does_not_bind_one_that_says() -> None:
    assert asked(RequestLimits(CONTEXT, VOCAB, default_output=4), max_tokens=9) == 9


@pytest.mark.parametrize("prompt", [CONTEXT, CONTEXT + 1, 10 * CONTEXT])
def test_a_prompt_that_fills_the_context(prompt: int) -> None:
    with pytest.raises(PromptTooLong) as caught:
        asked(LIMITS, prompt)
    assert f"{prompt} tokens" in caught.value.message
    assert str(CONTEXT) in caught.value.message


def test_an_answer_that_does_not_fit_names_the_clients_own_field() -> None:
    with pytest.raises(PromptTooLong) as caught:
        asked(LIMITS, 3, max_tokens=CONTEXT - 2, max_tokens_field="parameters.max_new_tokens")
    assert caught.value.param == "parameters.max_new_tokens"
    assert f"to {CONTEXT - 3} or less" in caught.value.message


def test_a_prompt_that_no_graph_was_compiled_for() -> None:
    limits = RequestLimits(CONTEXT, VOCAB, max_prompt=8)
    assert asked(limits, 8) == CONTEXT - 8
    with pytest.raises(PromptOverLimit, match="9"):
        asked(limits, 9)


def test_a_stop_token_past_the_vocabulary_would_end_the_engine() -> None:
    assert asked(LIMITS, stop_token_ids=(0, VOCAB - 1))
    with pytest.raises(InvalidField) as caught:
        asked(LIMITS, stop_token_ids=(0, VOCAB))
    assert caught.value.param == "stop_token_ids"
    assert str(VOCAB) in caught.value.message


def test_more_tokens_than_one_request_may_have_are_refused_by_the_client_s_own_name() -> None:
    limits = RequestLimits(CONTEXT, VOCAB, max_output=5)
    with pytest.raises(InvalidField, match="6 is more than this endpoint's limit of 5 output tokens") as caught:
        asked(limits, max_tokens=6, max_tokens_field="max_completion_tokens")
    assert caught.value.param == "max_completion_tokens"
    assert asked(limits, max_tokens=5) == 5


def test_a_grammar_is_held_to_its_limits() -> None:
    with pytest.raises(InvalidField) as caught:
        asked(LIMITS, grammar=Grammar("regex", "a" * 5000, "guided_regex"))
    assert caught.value.param == "guided_regex"


def test_a_schema_as_a_text_is_not_parsed_when_it_is_nested_too_deep() -> None:
    for text in ('{"a":' * 5000 + "1" + "}" * 5000, "[" * 5000):
        with pytest.raises(InvalidField, match="nested more than 64 levels"):
            asked(LIMITS, grammar=Grammar("json", text, "parameters.grammar"))
