"""What a client of TGI or LMI reads: the text, the details, the token events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from handler.engine.generation.generation import Position, Score
from handler.errors import EngineFailed
from handler.schemas.tgi_lmi import inputs_body as inputs
from handler.schemas.tgi_lmi.request_options import RequestOptions
from tests.handler.schemas.parsing_engine import ParsingEngine, events_of
from tests.handler.scripted_tokenizer import BOS, ScriptedTokenizer

ENGINE: Any = ParsingEngine()
TGI, LMI = RequestOptions(inputs_schema="tgi", output_formatter="sse"), RequestOptions(output_formatter="sse")
WHOLE = RequestOptions(output_formatter="json")
AWKWARD = ["\n\n", "\r", "\u2028", "data: [DONE]\n\n", "]", '"', "\\", "\0", "é", "😀", ""]
DELTAS = st.lists(st.text(max_size=6) | st.sampled_from(AWKWARD), max_size=8)


def reply_to(parameters: dict[str, Any], asked: RequestOptions, **body: Any) -> Any:
    return inputs.parse({"inputs": "abc", "parameters": parameters, **body}, ENGINE, asked).reply


def position(token: int, logprob: float, *others: tuple[int, float]) -> Position:
    return [Score(token, logprob, chr(token)), *(Score(other, value, chr(other)) for other, value in others)]


def streamed(reply: Any, deltas: Sequence[str], finish: str = "stop") -> list[Any]:
    *steps, last = deltas or [""]
    stream = reply.opening()
    for text in steps:
        stream += reply.event(text, [97], None, None)
    return events_of(stream + reply.event(last, [98], finish, None) + reply.closing())


@settings(max_examples=100, deadline=None)
@example(deltas=AWKWARD, full=True)
@given(deltas=DELTAS, full=st.booleans())
def test_a_token_stream_adds_up_to_its_text(deltas: list[str], full: bool) -> None:
    events = streamed(reply_to({"return_full_text": full}, TGI), deltas)
    assert "".join(event["token"]["text"] for event in events) == "".join(deltas)
    assert [event["index"] for event in events] == list(range(1, max(len(deltas), 1) + 1)), "an event for each token"
    assert [event["generated_text"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["generated_text"] == "abc" * full + "".join(deltas)


def test_a_token_event_in_full() -> None:
    reply = reply_to({"details": True, "top_n_tokens": 2, "seed": 5}, TGI)
    reply.receive([position(97, -0.5, (98, -1.5))], None)
    (first,) = events_of(reply.event("a", [97], None, None))
    assert first == {
        "index": 1,
        "token": {"id": 97, "text": "a", "logprob": -0.5, "special": False},
        "top_tokens": [
            {"id": 97, "text": "a", "logprob": -0.5, "special": False},
            {"id": 98, "text": "b", "logprob": -1.5, "special": False},
        ],
        "generated_text": None,
        "details": None,
    }
    reply.receive([position(99, -2.0, (97, -0.1), (98, -0.2))], None)
    (last,) = events_of(reply.event("c", [99], "length", None))
    assert [token["id"] for token in last["top_tokens"]] == [97, 98], "the likeliest, not the one drawn"
    assert last["generated_text"] == "abcac"
    assert last["details"] == {"finish_reason": "length", "generated_tokens": 2, "seed": 5, "input_length": 4}


@pytest.mark.parametrize(("asked", "shown"), [(TGI, "<bos>"), (LMI, "")], ids=["tgi", "lmi"])
def test_the_end_token_is_marked_special_and_is_no_part_of_the_text(asked: RequestOptions, shown: str) -> None:
    reply = reply_to({"return_full_text": False}, asked)
    events = events_of(reply.event("a", [97], None, None) + reply.event("", [BOS], "stop", None))
    assert [event["token"]["special"] for event in events] == [False, True]
    assert events[-1]["token"]["text"] == shown
    assert events[-1]["generated_text"] == "a"


def test_text_that_comes_with_the_end_token_is_not_marked_special() -> None:
    (event,) = events_of(reply_to({}, TGI).event("held back", [BOS], "stop", None))
    assert event["token"]["text"] == "held back"
    assert event["token"]["special"] is False, "or a client that leaves special tokens out would lose text"


def test_a_step_of_several_tokens_is_as_many_events() -> None:
    reply = reply_to({}, LMI)
    reply.receive([position(97, -0.5), position(98, -0.6)], None)
    own = events_of(reply.event("ab", [97, 98], None, None))
    assert [(event["token"]["text"], event["token"]["logprob"]) for event in own] == [("a", -0.5), ("b", -0.6)]
    other = events_of(reply.event("é", [99, 100], None, None))
    assert [event["token"]["text"] for event in other] == ["", "é"]
    assert [event["index"] for event in own + other] == [1, 2, 3, 4]


def test_no_log_probability_is_null_and_never_one_of_an_earlier_step() -> None:
    reply = reply_to({}, LMI)
    reply.receive([position(97, -0.5)], None)
    events = events_of(reply.event("a", [97], None, None) + reply.event("b", [98], None, None))
    assert [event["token"]["logprob"] for event in events] == [-0.5, None]


@pytest.mark.parametrize(
    ("finish", "stop", "told"),
    [
        ("length", None, "length"),
        ("stop", None, "eos_token"),
        ("stop", "x", "stop_sequence"),
        ("stop", 7, "stop_sequence"),
        ("stop", 107, "eos_token"),  # of the model's generation_config.json, as Gemma's <end_of_turn>
    ],
)
def test_the_reason_of_the_end_in_tgis_words(finish: str, stop: int | str | None, told: str) -> None:
    parameters = {"details": True, "stop_token_ids": [7]}
    whole = json.loads(reply_to(parameters, WHOLE).whole("a", [97], finish, stop))
    assert whole["details"]["finish_reason"] == told
    (event,) = events_of(reply_to(parameters, LMI).event("a", [97], finish, stop))
    assert event["details"]["finish_reason"] == told


def test_the_whole_reply_is_lmis_object_or_tgis_list() -> None:
    assert json.loads(reply_to({}, LMI).whole("x", [1], "stop", None)) == {"generated_text": "x"}
    assert json.loads(reply_to({}, TGI).whole("x", [1], "stop", None)) == [{"generated_text": "abcx"}]
    without = reply_to({"return_full_text": False}, TGI).whole("x", [1], "stop", None)
    assert json.loads(without) == [{"generated_text": "x"}]


class Stripping(ScriptedTokenizer):
    """Decodes as Llama 2's tokenizer does: without the blank at the beginning of a text."""

    is_fast = True

    @cached_property
    def backend_tokenizer(self) -> Tokenizer:
        backend = Tokenizer(models.WordLevel({"<bos>": BOS, "▁abc": 0, "▁world": 1, "!": 2}, unk_token="<bos>"))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        return backend


def test_the_texts_of_the_details_add_up_to_the_text() -> None:
    engine: Any = ParsingEngine()
    engine.prompts = replace(engine.prompts, tokenizer=Stripping())
    reply = inputs.parse({"inputs": "abc", "parameters": {"details": True}}, engine, WHOLE).reply
    whole = json.loads(reply.whole(" world!", [1, 2], "length", None))
    assert [token["text"] for token in whole["details"]["tokens"]] == [" world", "!"]


def test_the_details_in_full() -> None:
    reply = reply_to({"decoder_input_details": True, "top_n_tokens": 1}, RequestOptions(inputs_schema="tgi"))
    reply.receive(
        [position(120, -0.1), position(BOS, -0.2)], [None, position(97, -1.0), position(98, -2.0), position(99, -3.0)]
    )
    details = json.loads(reply.whole("x", [120, BOS], "stop", None))[0]["details"]
    assert details == {
        "finish_reason": "eos_token",
        "generated_tokens": 2,
        "seed": None,
        "prefill": [
            {"id": BOS, "text": "<bos>", "logprob": None},
            {"id": 97, "text": "a", "logprob": -1.0},
            {"id": 98, "text": "b", "logprob": -2.0},
            {"id": 99, "text": "c", "logprob": -3.0},
        ],
        "tokens": [
            {"id": 120, "text": "x", "logprob": -0.1, "special": False},
            {"id": BOS, "text": "<bos>", "logprob": -0.2, "special": True},
        ],
        "top_tokens": [
            [{"id": 120, "text": "x", "logprob": -0.1, "special": False}],
            [{"id": BOS, "text": chr(BOS), "logprob": -0.2, "special": True}],
        ],
    }


@pytest.mark.parametrize(("asked", "inputs"), [(LMI, "abc"), (TGI, None)], ids=["lmi", "tgi"])
def test_lmi_has_the_names_of_its_rolling_batch_too(asked: RequestOptions, inputs: str | None) -> None:
    streaming, whole = (
        reply_to({"details": True}, asked),
        reply_to({"details": True}, replace(asked, output_formatter="json")),
    )
    for reply in (streaming, whole):
        reply.receive([position(97, -0.5)], None)
    (event,) = events_of(streaming.event("a", [97], "length", None))
    document = json.loads(whole.whole("a", [97], "length", None))
    details = (document[0] if isinstance(document, list) else document)["details"]
    for token in (event["token"], details["tokens"][0]):
        assert (token["logprob"], token.get("log_prob")) == (-0.5, -0.5 if inputs else None)
    assert event["details"].get("inputs") == details.get("inputs") == inputs


def test_top_tokens_of_a_whole_reply_bring_its_details() -> None:
    reply = reply_to({"top_n_tokens": 1}, WHOLE)
    reply.receive([position(97, -0.5)], None)
    details = json.loads(reply.whole("a", [97], "length", None))["details"]
    assert [[token["id"] for token in tokens] for tokens in details["top_tokens"]] == [[97]]
    (event,) = events_of(reply_to({"top_n_tokens": 1}, LMI, stream=True).event("a", [97], "length", None))
    assert event["details"] is None, "a stream has them in its token events"


def test_a_list_is_answered_in_order() -> None:
    reply: Any = reply_to({}, WHOLE, inputs=["ab", "c"])
    reply.outputs = [("one", [1], "stop", None), ("two", [2], "length", None)]
    assert json.loads(reply.whole("", (), "stop", None)) == [{"generated_text": "one"}, {"generated_text": "two"}]


@pytest.mark.parametrize("asked", [WHOLE, RequestOptions(inputs_schema="tgi")], ids=["lmi", "tgi"])
def test_best_of_is_the_one_with_the_highest_mean(asked: RequestOptions) -> None:
    reply: Any = reply_to({"best_of": 3, "do_sample": True, "details": True, "return_full_text": False}, asked)
    means = [(-0.9,), (-0.2, -0.4), (-0.1, -0.1, -1.6)]
    for each, logprobs in zip(reply._replies, means, strict=True):
        each.receive([position(97, logprob) for logprob in logprobs], None)
    outputs = [(text, [97] * len(logprobs), "stop", None) for text, logprobs in zip("abc", means, strict=True)]
    reply.outputs = outputs
    whole = json.loads(reply.whole("", (), "stop", None))
    best = whole[0] if isinstance(whole, list) else whole
    assert isinstance(whole, list) is (asked is not WHOLE)
    assert best["generated_text"] == "b"
    others = best["details"]["best_of_sequences"]
    assert [(each["generated_text"], each["generated_tokens"]) for each in others] == [("a", 1), ("c", 3)]
    assert not any("inputs" in each for each in others)


def test_a_broken_stream_ends_with_one_error_event() -> None:
    reply = reply_to({}, LMI)
    stream = reply.event("x", [97], None, None) + reply.broken(EngineFailed("its process ended"))
    *_, last = events_of(stream)
    assert last["error"]["code"] == "engine_failed"
