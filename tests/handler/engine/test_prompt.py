from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.engine.generation.prompt_renderer import MOST_COUNTED, PromptRenderer
from handler.errors import InvalidField, TextTooLong
from tests.handler.scripted_tokenizer import (
    BOS,
    STRICT_TEMPLATE,
    VOCAB_SIZE,
    ScriptedTokenizer,
    scripted_prompts,
    text_of,
)

HELLO = [{"role": "user", "content": "Hello"}]


def test_ids_within_the_vocabulary_are_taken_as_they_are() -> None:
    assert scripted_prompts().ids((0, VOCAB_SIZE - 1), "prompt") == [0, VOCAB_SIZE - 1]


@pytest.mark.parametrize(("ids", "position"), [([1, VOCAB_SIZE], 1), ([-1], 0), ([0, 1, 2**40], 2)])
def test_an_id_past_the_vocabulary_would_end_the_engine(ids: list[int], position: int) -> None:
    with pytest.raises(InvalidField) as caught:
        scripted_prompts().ids(ids, "prompt")
    assert caught.value.param is not None
    assert caught.value.param.startswith("prompt")
    assert str(ids[position]) in caught.value.message
    assert str(VOCAB_SIZE - 1) in caught.value.message
    assert str(position) in caught.value.message


def test_no_ids_at_all() -> None:
    with pytest.raises(InvalidField, match="empty"):
        scripted_prompts().ids([], "prompt")


def test_a_template_sees_the_conversation_and_its_arguments() -> None:
    prompts = scripted_prompts(STRICT_TEMPLATE)
    assert text_of(prompts.chat(HELLO)) == "[user] Hello\n[assistant] "
    assert text_of(prompts.chat(HELLO, add_generation_prompt=False)) == "[user] Hello\n"
    assert text_of(prompts.chat(HELLO, template_arguments={"shout": True})).endswith("!")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('No system role here') }}", "No system role here"),
        ("{{ messages[5]['content'] }}", "messages"),
        ("{% for", "messages"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ raise_exception('') }}", "TemplateError"),
        ("{{ raise_exception('x' * 100000) }}", "xxx"),
        ("{{ raise_exception('one\\ntwo') }}", "one"),
    ],
)
def test_a_template_that_refuses_is_the_callers_error_in_one_line(template: str, words: str) -> None:
    with pytest.raises(InvalidField) as caught:
        scripted_prompts(template).chat(HELLO)
    assert caught.value.param == "messages"
    assert words in caught.value.message
    assert "two" not in caught.value.message
    assert len(caught.value.message) < 400


def test_without_a_template() -> None:
    with pytest.raises(InvalidField, match="no chat template"):
        scripted_prompts(None).chat(HELLO)


def test_the_messages_given_are_not_changed() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    scripted_prompts("x", parts=True).chat(messages)
    assert messages == HELLO


@settings(max_examples=100, deadline=None)
@given(st.text(), st.booleans())
def test_a_text_becomes_its_tokens(text: str, special: bool) -> None:
    prompts = scripted_prompts()
    if not text and not special:
        with pytest.raises(InvalidField, match="empty"):
            prompts.text(text, "prompt", add_special_tokens=special)
        return
    ids = prompts.text(text, "prompt", add_special_tokens=special)
    assert (ids[0] == BOS) == special
    assert text_of(ids) == text


def test_the_tokens_of_a_text_that_cannot_fit_are_not_counted() -> None:
    prompts = replace(scripted_prompts(), max_characters=20)
    assert text_of(prompts.text("x" * 20, "prompt")) == "x" * 20
    with pytest.raises(TextTooLong, match="has 21 characters, and this model's context holds at most 20") as caught:
        prompts.text("x" * 21, "inputs[1]")
    assert caught.value.param == "inputs[1]"
    with pytest.raises(TextTooLong):
        prompts.chat([{"role": "user", "content": "x" * 21}])
    assert text_of(prompts.text("x" * 21, "inputs", cut=True)) == "x" * 21
    with pytest.raises(InvalidField, match="it has 2,000,001 characters; at most 2,000,000 are allowed"):
        prompts.text("x" * (MOST_COUNTED + 1), "inputs", cut=True)
    assert (
        len(replace(prompts, max_characters=MOST_COUNTED + 2).text("x" * (MOST_COUNTED + 1), "prompt"))
        == MOST_COUNTED + 2
    )
    assert text_of(prompts.chat([{"role": "user", "content": "x" * 21}], "inputs", cut=True)) == "x" * 21


def test_a_slow_tokenizer_is_never_used_by_two_threads_at_once() -> None:
    inside = threading.Lock()
    clashes = 0

    class OneAtATime(ScriptedTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            nonlocal clashes
            if not inside.acquire(blocking=False):
                clashes += 1
                return [0]
            try:
                for _ in range(200):
                    threading.Event().wait(0)  # lets another thread in, if one may come
                return super().encode(text, add_special_tokens)
            finally:
                inside.release()

    prompts = PromptRenderer(OneAtATime(), None, False, VOCAB_SIZE)
    with ThreadPoolExecutor(4) as pool:
        assert {tuple(ids) for ids in pool.map(lambda _: prompts.text("ab", "prompt"), range(40))} == {(BOS, 97, 98)}
    assert clashes == 0


def test_a_fast_tokenizer_is_asked_in_rust_under_threads() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "[B]": 2}, unk_token="[B]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing("[B] $A", None, [("[B]", 2)])

    class Fast:
        is_fast = True
        backend_tokenizer: Any = backend

    prompts = PromptRenderer(Fast(), None, False, 3)
    with ThreadPoolExecutor(4) as pool:
        assert {tuple(ids) for ids in pool.map(lambda _: prompts.text("a b a", "p"), range(200))} == {(2, 0, 1, 0)}
    assert prompts.text("b", "p", add_special_tokens=False) == [1]
