"""Which API a body speaks and which path answers it."""

from __future__ import annotations

from typing import Any

import pytest

from handler.engine.api_routes import PLAIN, Route, Traits
from handler.errors import ClientError, InvalidBody, InvalidField, MissingField
from handler.schemas.anthropic.message_fields import MessagesRoute
from handler.schemas.dispatch import by_key, parse_path, path_of, plain_path
from handler.schemas.framing import ignored_fields
from tests.handler.schemas.parsing_engine import ParsingEngine

HELLO = [{"role": "user", "content": "Hello"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]
IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}
TOOL_TURN = [*HELLO, {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "tool_call_id": "1"}]


def is_short(document: dict[str, Any], traits: Traits = PLAIN) -> bool:
    route = by_key(document, traits)
    assert route is not None
    return plain_path(route, document, traits)


@pytest.mark.parametrize(
    ("document", "route"),
    [
        ({"messages": HELLO}, Route.CHAT),
        ({"prompt": "a"}, Route.COMPLETIONS),
        ({"inputs": "a"}, None),
        ({"input": "a"}, Route.RESPONSES),
        ({"tokens": [1]}, Route.DETOKENIZE),
        ({"prompt": "a", "input": "b"}, Route.COMPLETIONS),
    ],
)
def test_one_key_decides(document: dict[str, Any], route: Route | None) -> None:
    assert by_key(document, PLAIN) == route


def test_on_an_endpoint_for_embeddings_a_body_asks_for_one() -> None:
    pooling = Traits(tasks=frozenset({"embed"}))
    assert by_key({"input": "a"}, pooling) is Route.EMBEDDINGS
    assert by_key({"messages": HELLO}, pooling) is Route.EMBEDDINGS


@pytest.mark.parametrize(
    ("document", "error"), [({}, MissingField), ({"a": 1}, MissingField), ({"messages": [], "prompt": ""}, InvalidBody)]
)
def test_what_no_key_decides_is_the_callers_error(document: dict[str, Any], error: type[ClientError]) -> None:
    with pytest.raises(error):
        by_key(document, PLAIN)


def test_the_routes_that_vllm_alone_answers() -> None:
    assert not plain_path(Route.TOKENIZE, {"messages": HELLO}, PLAIN)
    assert path_of("/v1/responses") is Route.RESPONSES
    with pytest.raises(InvalidField, match="/v1/chat/completions"):
        path_of("/v1/audio")


SHORT: list[dict[str, Any]] = [
    {},
    {"n": 1, "logprobs": False, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}},
    {"logprobs": None, "echo": False, "priority": 0, "return_token_ids": None, "unknown": {"a": 1}},
    {"temperature": 0, "seed": 3, "stop": ["a"], "stream": True, "stream_options": {"include_usage": True}},
]
FULL: list[dict[str, Any]] = [
    {"n": 2},
    {"logprobs": 0},
    {"logprobs": True},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "required"},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"choice": ["a"]}},
    {"guided_choice": ["a"]},
    {"echo": True},
    {"use_beam_search": True},
    {"priority": 1},
    {"cache_salt": "a"},
]


@pytest.mark.parametrize("key", ["messages", "prompt"])
@pytest.mark.parametrize("fields", SHORT)
def test_plain_text_is_short(key: str, fields: dict[str, Any]) -> None:
    body = {key: HELLO if key == "messages" else "a", **fields}
    assert is_short(body)


@pytest.mark.parametrize("key", ["messages", "prompt"])
@pytest.mark.parametrize("fields", FULL)
def test_a_field_that_asks_for_more_takes_the_full_path(key: str, fields: dict[str, Any]) -> None:
    body = {key: HELLO if key == "messages" else "a", **fields}
    assert not is_short(body)


@pytest.mark.parametrize("messages", [PARTS, TOOL_TURN, [{**PARTS[0], "role": "ipython"}]])
def test_messages_with_more_than_text_take_the_full_path(messages: list[Any]) -> None:
    assert not is_short({"messages": messages})


def test_several_prompts_take_the_full_path_and_one_in_a_list_does_not() -> None:
    assert not is_short({"prompt": ["a", "b"]})
    assert not is_short({"prompt": [[1], [2]]})
    assert is_short({"prompt": ["a"]})
    assert is_short({"prompt": [1, 2, 3]})


def test_answers_that_are_taken_apart_take_the_full_path() -> None:
    assert not is_short({"messages": HELLO}, Traits(plain_chat=False))
    assert is_short({"prompt": "a"}, Traits(plain_chat=False))
    assert not is_short({"prompt": "a"}, Traits(plain_usage=False))


def test_a_message_is_answered_in_its_own_names() -> None:
    engine, body = ParsingEngine(), {"max_tokens": 5, "messages": HELLO}
    schema = {"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#"}}}}
    image = {"system": "a", "messages": [{"role": "user", "content": [IMAGE]}]}
    for fields, param in ((schema, "output_config.format"), (image, "messages")):
        with pytest.raises(ClientError) as caught:
            parse_path(MessagesRoute.MESSAGES, body | fields, engine)  # type: ignore[arg-type]  # a stand-in
        assert (caught.value.param, caught.value.message.split("'")[1]) == (param, param)
    assert ignored_fields(parse_path(MessagesRoute.COUNT, body, engine)) == ("max_tokens",)  # type: ignore[arg-type]
