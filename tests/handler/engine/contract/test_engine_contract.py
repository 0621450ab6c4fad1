"""What every engine's adapter keeps, whatever vLLM is installed: one engine for all of these tests."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from handler.engine.api_routes import Route
from handler.engine.generation.generation import Grammar
from handler.engine.v1.accelerators import Accelerators, accelerators
from handler.errors import EndpointError, GenerationFailed, InvalidField, PlainTextOnly
from sample_model.facts import by_name
from tests.handler.engine.contract.engine_starts import SLOTS, StartedEngine
from tests.handler.waiting import WITHIN, eventually
from tests.installed_vllm import version

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
SAMPLED = {"temperature": 2.0, "max_tokens": 32, "ignore_eos": True}


@pytest.fixture(scope="module", params=["as proven", "public"])
def started(request: pytest.FixtureRequest) -> Iterator[StartedEngine]:
    public = request.param == "public"
    if public and not (accelerators(version()) or Accelerators()).direct:
        pytest.skip("this version is used by its public interface anyway")
    started = StartedEngine(public=public)
    yield started
    started.engine.stop()


@pytest.fixture(scope="module")
def prompt(started: StartedEngine) -> list[int]:
    return started.prompt(QUESTION)


def test_the_facts_are_the_model_s(started: StartedEngine) -> None:
    facts = started.engine._adapter.facts
    config = json.loads((started.model / "config.json").read_text())
    assert (facts.context, facts.slots, facts.vocab_size) == (512, SLOTS, config["vocab_size"])
    assert facts.template is not None
    assert not facts.content_as_parts
    assert facts.adapters is None
    assert facts.sampling_defaults["temperature"] == 1.0
    assert facts.longest_token > 1
    assert started.engine.unfinished() == 0


@pytest.mark.parametrize("stream", [False, True])
def test_greedy_tokens_are_the_answer(started: StartedEngine, prompt: list[int], stream: bool) -> None:
    got = started.answer(prompt, stream=stream)
    assert (got.text, got.finish, got.error) == (by_name("ping").answer, ("stop", None), None)
    assert got.pushes > 1 if stream else got.pushes == 1
    assert started.engine.prompts.tokenizer.decode(got.ids, skip_special_tokens=True) == got.text


def test_a_seed_repeats_what_is_sampled(started: StartedEngine, prompt: list[int]) -> None:
    started.require("seed")
    first, again, other = (started.answer(prompt, **{**SAMPLED, "seed": seed}) for seed in (7, 7, 8))
    assert first.ids == again.ids != other.ids
    assert first.finish == ("length", None)


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text(started: StartedEngine, prompt: list[int], stream: bool, included: bool) -> None:
    answer = by_name("ping").answer
    word = answer.split()[2]
    got = started.answer(prompt, stream=stream, stop=(word,), include_stop_str_in_output=included)
    assert got.finish == ("stop", word)
    assert got.text == answer[: answer.index(word) + (len(word) if included else 0)]


def test_a_request_that_cannot_be_sent_to_the_core_holds_no_slot(started: StartedEngine, prompt: list[int]) -> None:
    for _ in range(SLOTS + 1):
        started.answer(prompt, stop=("\ud800",))  # V0's messages may have it
    assert started.engine.unfinished() == 0
    assert started.answer(prompt).text == by_name("ping").answer


def test_a_stop_token_ends_the_text(started: StartedEngine, prompt: list[int]) -> None:
    whole = started.answer(prompt)
    place = next(place for place, token in enumerate(whole.ids) if token not in whole.ids[:place] and place > 2)
    got = started.answer(prompt, stop_token_ids=(whole.ids[place],))
    assert got.finish == ("stop", whole.ids[place])
    assert got.ids == whole.ids[: place + 1]
    assert whole.text.startswith(got.text)


@pytest.mark.parametrize("stream", [False, True])
def test_the_limit_of_tokens_is_kept(started: StartedEngine, prompt: list[int], stream: bool) -> None:
    got = started.answer(prompt, stream=stream, max_tokens=3)
    assert (len(got.ids), got.finish) == (3, ("length", None))


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_come_with_their_tokens(started: StartedEngine, prompt: list[int], stream: bool) -> None:
    started.require("logprobs")
    got = started.answer(prompt, stream=stream, scored=True, max_tokens=4, logprobs=2, prompt_logprobs=0)
    assert [position[0].token_id for position in got.scores] == got.ids
    for position in got.scores:
        assert len(position) >= 2
        assert position[0].logprob == max(score.logprob for score in position) <= 0, "greedy takes the likeliest"
    assert got.prompt_scores is not None
    first, *others = got.prompt_scores
    assert first is None
    assert [position[0].token_id for position in others if position] == prompt[1:]


@pytest.mark.parametrize("scored", [False, True])
def test_a_push_has_one_token_if_tokens_are_to_be_apart(
    started: StartedEngine, prompt: list[int], scored: bool
) -> None:
    named = {"logprobs": 1} if scored else {}
    started.require(*named)
    _, sink = started.begin(prompt, stream=True, apart=True, scored=scored, max_tokens=100, ignore_eos=True, **named)
    for _ in range(10):
        started.engine.loop.call(time.sleep, 0.05)  # the loop is held up, and later tokens arrive meanwhile
    assert sink.done.wait(WITHIN)
    assert sink.pushes == len(sink.ids) == 100
    assert len(sink.scores) == (100 if scored else 0)
    assert started.engine.prompts.tokenizer.decode(sink.ids, skip_special_tokens=True) == sink.text


def test_more_than_there_are_slots_all_end(started: StartedEngine, prompt: list[int]) -> None:
    sinks = [started.begin(prompt, stream=place % 2 == 0)[1] for place in range(2 * SLOTS)]
    for sink in sinks:
        assert sink.done.wait(WITHIN)
        assert sink.text == by_name("ping").answer
    eventually(lambda: started.engine.unfinished() == 0)


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_cancelled_request_frees_its_slot(started: StartedEngine, prompt: list[int], when: str) -> None:
    long: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True, "stream": True}
    running = [started.begin(prompt, **long) for _ in range(SLOTS + (when == "waiting"))]
    if when == "running":
        assert all(sink.begun.wait(WITHIN) for _, sink in running)
    for request, _ in running:
        started.engine.loop.call(request.cancel)
    eventually(lambda: started.engine.unfinished() == 0)
    assert started.answer(prompt).text == by_name("ping").answer
    assert not any(sink.error or sink.finish[0] for _, sink in running), "nobody is told"


@pytest.mark.parametrize(
    ("field", "sampling"),
    [
        ("top_p", {"top_p": 3.0}),
        ("temperature", {"temperature": -1.0}),
        ("stop_token_ids", {"stop_token_ids": (10**6,)}),
        ("top_k", {"top_k": -7}),
        ("max_tokens", {"max_tokens": 600}),
        ("repetition_penalty", {"repetition_penalty": float("nan")}),
        ("temperature", {"temperature": float("inf")}),
        ("seed", {"seed": 2**70}),
        ("logprobs", {"logprobs": 10**6}),
    ],
)
def test_a_wrong_parameter_is_named_and_ends_nothing(
    started: StartedEngine, prompt: list[int], field: str, sampling: dict[str, Any]
) -> None:
    error = refused(started, prompt, **sampling)
    assert 400 <= error.status < 500
    assert field in f"{error.param} {error.message}"
    assert started.answer(prompt).text == by_name("ping").answer


@pytest.mark.parametrize("token", [10**6, -1, 2**40])
def test_a_wrong_token_is_refused_and_ends_nothing(started: StartedEngine, token: int) -> None:
    error = refused(started, [1, token, 2])
    assert 400 <= error.status < 500, error
    assert isinstance(error, InvalidField)
    assert not started.engine.dead()


def test_a_grammar_is_kept_or_refused(started: StartedEngine, prompt: list[int]) -> None:
    started.require("grammar")
    grammar = Grammar("regex", "[0-9]{3}", "parameters.grammar")
    if started.engine._adapter.facts.grammars:
        assert re.fullmatch("[0-9]{3}", started.answer(prompt, grammar=grammar).text)
        grammar = Grammar("regex", "[0-9", "parameters.grammar")
    error = refused(started, prompt, grammar=grammar)
    assert isinstance(error, InvalidField)
    assert error.param == "parameters.grammar"


def test_a_prompt_without_room_is_refused(started: StartedEngine) -> None:
    assert refused(started, [1] * 512).status == 400


def test_a_probe_is_answered_while_tokens_are_made(started: StartedEngine, prompt: list[int]) -> None:
    request, sink = started.begin(prompt, max_tokens=400, ignore_eos=True, stream=True)
    started.engine.loop.run(started.engine._adapter.probe(), WITHIN)
    assert started.engine.problem() is None
    started.engine.loop.call(request.cancel)
    assert sink.error is None


def test_an_unknown_failure_of_the_engine_is_a_server_error(started: StartedEngine) -> None:
    error = started.engine._adapter.as_endpoint_error(KeyError("x"))
    assert isinstance(error, GenerationFailed)


def test_plain_text_is_served_where_the_serving_classes_are_not_known(started: StartedEngine) -> None:
    if started.engine.serving is None:
        with pytest.raises(PlainTextOnly):
            started.engine.require_serving()
    else:
        assert "messages" in started.engine.serving.fields(Route.CHAT)


def refused(started: StartedEngine, prompt: list[int], **sampling: Any) -> EndpointError:
    """The error of a request, before or after it is queued."""
    try:
        got = started.answer(prompt, **sampling)
    except EndpointError as error:
        return error
    assert got.error is not None, got.text
    return got.error
