"""From a body's document to a call: each schema, and which of them a body of /invocations is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.errors import ClientError, InvalidBody, MissingField, ModelNotFound
from handler.schemas import dispatch
from handler.schemas.framing import WrappedCall
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai import chat, completion
from handler.schemas.openai import vllm_path as full
from handler.schemas.reply import Call
from handler.schemas.tgi_lmi import inputs_body as inputs
from tests.handler.schemas.parsing_engine import ParsingEngine
from tests.handler.scripted_tokenizer import BOS, STRICT_TEMPLATE, VOCAB_SIZE, text_of

ENGINE: Any = ParsingEngine()
STRICT: Any = ParsingEngine(STRICT_TEMPLATE)
HELLO = [{"role": "user", "content": "Hello"}]


def chat_prompt(messages: list[Any], engine: Any = STRICT, **fields: Any) -> str:
    return text_of(chat.parse({"messages": messages, **fields}, engine).generation.prompt)


def refused(document: dict[str, Any], parse: Any = dispatch.parse, engine: Any = ENGINE) -> ClientError:
    with pytest.raises(ClientError) as caught:
        parse(document, engine)
    return caught.value


# Which schema


def test_no_prompt_names_all_three_ways_to_give_one() -> None:
    error = refused({"temperature": 1})
    assert isinstance(error, MissingField)
    assert all(f"'{key}'" in error.message for key in ("messages", "prompt", "inputs"))


@pytest.mark.parametrize("keys", [("messages", "prompt"), ("prompt", "inputs"), ("messages", "inputs")])
def test_two_prompts_are_refused_naming_both(keys: tuple[str, str]) -> None:
    error = refused(dict.fromkeys(keys, "a"))
    assert isinstance(error, InvalidBody)
    assert all(f"'{key}'" in error.message for key in keys)


@pytest.mark.parametrize(
    ("parse", "key"), [(chat.parse, "messages"), (completion.parse, "prompt"), (inputs.parse, "inputs")]
)
def test_a_route_of_its_own_asks_for_its_own_key(parse: Any, key: str) -> None:
    for document in ({}, {key: None}):
        error = refused(document, parse)
        assert isinstance(error, MissingField)
        assert error.param == key


# Chat


def test_a_chat_is_rendered_by_the_models_template() -> None:
    conversation = [*HELLO, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}]
    assert chat_prompt(conversation) == "[user] Hello\n[assistant] Hi\n[user] More\n[assistant] "
    assert chat_prompt(HELLO, add_generation_prompt=False) == "[user] Hello\n"
    assert chat_prompt(HELLO, chat_template_kwargs={"shout": True}) == "[user] Hello\n[assistant] !"


def test_special_tokens_are_the_templates_business_unless_asked_for() -> None:
    assert BOS not in chat.parse({"messages": HELLO}, ENGINE).generation.prompt
    assert chat.parse({"messages": HELLO, "add_special_tokens": True}, ENGINE).generation.prompt[0] == BOS


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "one"}, {"text": "two"}]
    assert chat_prompt([{"role": "user", "content": parts}], ENGINE) == "one\ntwo"


def test_a_template_that_wants_parts_gets_them() -> None:
    template = "{% for m in messages %}{% for part in m['content'] %}<{{ part['text'] }}>{% endfor %}{% endfor %}"
    engine: Any = ParsingEngine(template, parts=True)
    assert chat_prompt(HELLO, engine) == "<Hello>"


def test_a_role_of_the_templates_own_reaches_it() -> None:
    messages = [*HELLO, {"role": "document", "content": "Rain."}]
    for body in ({"messages": messages}, {"inputs": messages}):
        call = dispatch.parse(body, STRICT)
        assert isinstance(call, Call)
        assert text_of(call.generation.prompt) == "[user] Hello\n[document] Rain.\n[assistant] "


def test_an_assistant_turn_may_have_no_content() -> None:
    conversation = [*HELLO, {"role": "assistant", "content": None}]
    assert chat_prompt(conversation, add_generation_prompt=False) == "[user] Hello\n[assistant] \n"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("Hello", "messages"),
        (["Hello"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([*HELLO, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0]"),
        ([], "messages"),
    ],
)
def test_a_message_that_cannot_be_used_is_named(messages: Any, param: str) -> None:
    assert refused({"messages": messages}).param == param


def test_what_the_template_refuses_is_the_callers_error_with_the_templates_words() -> None:
    error = refused({"messages": [{"role": "assistant", "content": "x"}]}, engine=STRICT)
    assert error.param == "messages"
    assert "roles must alternate" in error.message


def test_a_model_without_a_template_says_to_send_a_prompt() -> None:
    engine: Any = ParsingEngine(None)
    assert "'prompt'" in refused({"messages": HELLO}, engine=engine).message


def test_continuing_the_last_message_excludes_a_generation_prompt() -> None:
    assert refused({"messages": HELLO, "continue_final_message": True}).param == "continue_final_message"
    both = {"messages": HELLO, "continue_final_message": True, "add_generation_prompt": False}
    assert chat.parse(both, ENGINE).generation.prompt


@pytest.mark.parametrize(
    ("fields", "limit", "name"),
    [
        ({}, None, "max_tokens"),
        ({"max_tokens": 5}, 5, "max_tokens"),
        ({"max_completion_tokens": 6}, 6, "max_completion_tokens"),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6, "max_completion_tokens"),
    ],
)
def test_a_chats_limit_keeps_the_name_it_was_given_by(fields: dict[str, Any], limit: int | None, name: str) -> None:
    chosen = chat.parse({"messages": HELLO, **fields}, ENGINE).generation.sampling
    assert (chosen.max_tokens, chosen.max_tokens_field) == (limit, name)


# Completion


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [[]],
        [1, "a"],
        [True],
        [1.5],
        [1, 1.5],
        [1e300],
        [None],
        [VOCAB_SIZE],
        [-1],
        [2**70],
        {"a": 1},
        5,
        ["a"] * 5,
        [["a"]],
    ],
)
def test_a_prompt_that_cannot_be_used(prompt: Any) -> None:
    error = refused({"prompt": prompt})
    assert (error.param or "").startswith("prompt")
    assert error.status == 400


@pytest.mark.parametrize("prompt", [[3.0, 4, 5.0], [[3.0, 4, 5.0]]])
def test_the_token_ids_of_a_prompt_may_be_written_with_a_point(prompt: list[Any]) -> None:
    ids = completion.parse({"prompt": prompt}, ENGINE).generation.prompt
    assert [repr(token) for token in ids] == ["3", "4", "5"]


def test_a_text_without_tokens_is_refused() -> None:
    assert "empty" in refused({"prompt": "", "add_special_tokens": False}).message


# All of them

BODIES: list[dict[str, Any]] = [{"messages": HELLO}, {"prompt": "a"}]


@pytest.mark.parametrize("body", BODIES, ids=["chat", "completion"])
@pytest.mark.parametrize("model", ["sample", "alias", "", None])
def test_the_model_may_be_any_served_name_or_none(body: dict[str, Any], model: str | None) -> None:
    call = dispatch.parse({**body, "model": model}, ENGINE)
    whole = call.reply.whole("x", [1], "stop", None)
    assert f'"model":"{model or "sample"}"'.encode() in whole


@pytest.mark.parametrize("body", BODIES, ids=["chat", "completion"])
def test_another_model_is_not_found(body: dict[str, Any]) -> None:
    error = refused({**body, "model": "gpt-5" * 1000})
    assert isinstance(error, ModelNotFound)
    assert error.status == 404
    assert "'sample'" in error.message
    assert len(error.message) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=6,
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "x"])
MESSAGE = st.fixed_dictionaries({}, optional={"role": ROLES | JSON, "content": JSON, "name": JSON, "tool_calls": JSON})
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(MESSAGE | JSON, max_size=3) | JSON,
        "prompt": JSON,
        "inputs": JSON,
        "parameters": JSON,
        "chat_template_kwargs": JSON,
        "stream": st.booleans(),
        "stop": JSON,
    },
)


@settings(max_examples=400, deadline=None)
@given(DOCUMENT)
def test_any_document_is_a_call_or_a_client_error(document: dict[str, Any]) -> None:
    try:
        call = dispatch.parse(document, STRICT)
    except ClientError as error:
        assert 400 <= error.status < 500  # noqa: PT017  either outcome is fine
        return
    if isinstance(call, WrappedCall):
        call = call.call
    if isinstance(call, full.ServedCall):  # its prompt is made by vLLM
        return
    assert isinstance(call, Call | MultipleCall)
    for generation in (call.generation,) if isinstance(call, Call) else call.generations:
        assert generation.prompt
        assert all(0 <= token < VOCAB_SIZE for token in generation.prompt)
