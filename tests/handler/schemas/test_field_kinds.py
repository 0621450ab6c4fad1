"""The table of request fields, by what the engine is handed: no name of any API is ignored in silence."""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest

from handler.engine.api_routes import Route
from handler.errors import ClientError, InvalidField, UnsupportedField
from handler.schemas import dispatch
from handler.schemas.anthropic.message_fields import MessageFields, MessagesRoute
from handler.schemas.framing import ignored_fields, unframed
from handler.schemas.openai.chat import ChatFields
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.request_fields import MAX_NAME, MAX_UNKNOWN, TABLE, Body, meanings, resolve
from handler.schemas.tgi_lmi.inputs_fields import InputsFields, Parameters
from tests.handler.schemas.parsing_engine import ParsingEngine
from tests.request_field_table import BODIES, COLUMNS, NAMES, PAGE, body_with, page

TEMPLATE = (
    "{{ messages[0].content }}{{ a }}{{ enable_thinking }}{{ messages|length }}"
    "{% if add_generation_prompt %}:{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]


def handed(path: str, document: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """The names without an effect, and all else of a body: what the engine gets, and the form of the reply."""
    engine: Any = ParsingEngine(TEMPLATE)
    if path == "/invocations":
        call = dispatch.parse(document, engine)
    else:
        call = dispatch.parse_path(
            MessagesRoute(path) if path in list(MessagesRoute) else Route(path), document, engine
        )
    inner: Any = unframed(call)
    calls = [inner.generation] if hasattr(inner, "generation") else getattr(inner, "generations", engine.serving.asked)
    reply: Any = getattr(inner, "reply", None)
    form = [getattr(reply, name, None) for name in ("_include_usage", "_each_usage", "_options", "_role")]
    whole = f"{calls}{form}{call.stream}{call.reply.stream_content_type}{engine.serving.asked}"
    return ignored_fields(call), re.sub(r"(gen|cmpl|chatcmpl)-\w+|<[^>]* at 0x\w+>", "", whole)


def test_each_name_is_in_one_row() -> None:
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (Body.CHAT, ChatFields),
        (Body.COMPLETION, CompletionFields),
        (Body.MESSAGE, MessageFields),
        (Body.INPUTS, InputsFields),
        (Body.PARAMETERS, Parameters),
    ],
)
def test_the_table_honours_without_vllm_what_the_types_have(body: Body, fields: type[msgspec.Struct]) -> None:
    table, paths = meanings(body).items(), body in (Body.CHAT, Body.COMPLETION)
    honoured = {name for name, meaning in table if (meaning.plain if paths else meaning.honoured)}
    assert honoured | ({"n"} if paths else set()) == {*fields.__struct_fields__}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("body", COLUMNS)
def test_every_name_is_honoured_or_rejected_or_listed(body: Body, stream: bool) -> None:
    prefix = "parameters." * (body is Body.PARAMETERS)
    silent = []
    for name in NAMES:
        if name == "anthropic_version" and body in (Body.MESSAGE, Body.INPUTS):
            continue  # it decides the route
        path, document = body_with(name, body, stream=stream)
        base = {**BODIES[body][1], **({"stream": True} if document.get("stream") and name != "stream" else {})}
        try:
            ignored, got = handed(path, document)
        except ClientError as error:
            if not (error.param or "").startswith(prefix + name) and f"'{name}'" not in error.message:
                silent.append((name, error.message))
            continue
        if prefix + name not in ignored and got == handed(path, base)[1]:
            silent.append((name, "no effect"))
    assert silent == []


@pytest.mark.parametrize(
    ("path", "fields", "param", "instead"),
    [
        ("/v1/chat/completions", {"extra_body": {"model": "a"}}, "extra_body", "into the body itself"),
        ("/v1/chat/completions", {"max_new_tokens": 5}, "max_new_tokens", "'max_tokens'"),
        ("/v1/chat/completions", {"stop_sequences": ["a"]}, "stop_sequences", "'stop'"),
        ("/v1/chat/completions", {"parameters": {"temperature": 1}}, "parameters", "into the body itself"),
        ("/v1/chat/completions", {"grammar": {"type": "json"}}, "grammar", "'structured_outputs'"),
        ("/v1/chat/completions", {"typical_p": 0.9}, "typical_p", "leave it out"),
        ("/v1/chat/completions", {"watermark": True}, "watermark", "leave it out"),
        ("/v1/chat/completions", {"num_beams": 3}, "num_beams", "'use_beam_search'"),
        ("/v1/chat/completions", {"max_length": 9}, "max_length", "'max_tokens'"),
        ("/v1/chat/completions", {"enable_thinking": False}, "enable_thinking", "'chat_template_kwargs'"),
        ("/v1/chat/completions", {"prompt_lookup_num_tokens": 5}, "prompt_lookup_num_tokens", "speculative decoding"),
        ("/v1/chat/completions", {"do_sample": False}, "do_sample", "'temperature': 0"),
        ("/v1/chat/completions", {"functions": [{}]}, "functions", "'tools'"),
        (
            "/v1/completions",
            {"tools": [{"type": "function"}]},
            "tools",
            "field of other bodies (chat, message, response)",
        ),
        ("/v1/responses", {"max_tokens": 3}, "max_tokens", "'max_output_tokens'"),
        ("/v1/responses", {"response_format": {"type": "json_object"}}, "response_format", "'text'"),
        ("/v1/responses", {"prompt": {"id": "pmpt_1"}}, "prompt", "'input'"),
        ("/v1/responses", {"stream_options": {"include_usage": True}}, "stream_options", "leave it out"),
        ("/v1/messages", {"stop": ["a"]}, "stop", "'stop_sequences'"),
        ("/invocations", {"max_tokens": 5}, "max_tokens", "'parameters.max_new_tokens'"),
        ("/invocations", {"stop": ["a"]}, "stop", "'parameters.stop'"),
        ("/invocations", {"temperature": 0.5}, "temperature", "'parameters.temperature'"),
        ("/invocations", {"model_kwargs": {"temperature": 0.5}}, "model_kwargs", "'parameters'"),
        ("/invocations", {"parameters": {"stream": True}}, "parameters.stream", "beside 'parameters'"),
        ("/invocations", {"parameters": {"max_tokens": 5}}, "parameters.max_tokens", "'max_new_tokens'"),
        *((path, {name: "a"}, name, "'model'") for path, _ in BODIES.values() for name in ("adapter", "lora_id")),
        ("/v1/chat/completions", {"adapters": "nope"}, "adapters", "'model'"),
        ("/v1/embeddings", {"adapters": "nope"}, "adapters", "'model'"),
    ],
)
def test_an_error_names_what_to_send(path: str, fields: dict[str, Any], param: str, instead: str) -> None:
    base = {"/v1/embeddings": {"input": "a"}, **dict(BODIES.values())}[path]
    with pytest.raises(UnsupportedField) as caught:
        handed(path, {**base, **fields})
    assert caught.value.param == param
    assert instead in caught.value.message


def test_a_name_that_nobody_knows_is_listed_within_bounds() -> None:
    unknown = {f"zq{number}\r\nX: y": 1 for number in range(100)} | {"z" * 300: 1}
    ignored, _ = handed("/v1/chat/completions", {"messages": HELLO, "user": "u", "zz-top": {"a": 1}, **unknown})
    assert ignored[:3] == ("user", "zz-top", "zq0??X??y")
    assert len(ignored) == MAX_UNKNOWN
    assert resolve(Body.CHAT, {"z" * 300: 1})[1] == ("z" * MAX_NAME,)
    inputs = {"inputs": "a", "parameters": {"zz": 1, "pad_token_id": 0}, "zy": 2}
    assert handed("/invocations", inputs)[0] == ("zy", "parameters.zz", "parameters.pad_token_id")
    messages = [*HELLO, {"role": "assistant", "content": "a", "foo": 1, "tool_calls": [], "reasoning": None}] * 2
    assert handed("/invocations", {"inputs": messages})[0] == ("inputs.foo",)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tool_calls": 1}, "max_tool_calls"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning.summary"),
        ({"include": ["reasoning.encrypted_content"]}, "include.reasoning.encrypted_content"),
    ],
)
def test_what_vllm_never_reads_of_a_response_is_listed(fields: dict[str, Any], name: str) -> None:
    assert handed("/v1/responses", {"input": "a", **fields})[0] == (name,)
    used = {"include": ["message.output_text.logprobs"], "reasoning": {"effort": "low", "summary": None}}
    assert handed("/v1/responses", {"input": "a", **used})[0] == ()


def test_keys_of_a_messages_tools_and_options_without_an_effect_are_listed() -> None:
    message = {"messages": HELLO, "max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    tools = [{"name": "f", "input_schema": {}, "input_examples": [{}], "strict": False, "a\r\nb": 1}] * 2
    config = {"effort": "low", "task_budget": {"type": "tokens", "total": 5}}
    ignored, _ = handed("/v1/messages", {**message, "tools": tools, "output_config": config})
    assert ignored == ("tools.input_examples", "tools.a??b", "thinking.budget_tokens", "output_config.task_budget")


def test_values_that_ask_for_nothing_pass() -> None:
    for row in TABLE:
        for name in row.also.split():
            for value in (None, *row.neutral):
                assert resolve(Body.CHAT, {name: value})[0] == {}, (name, value)
    stream = {"input": "a", "stream": True}
    assert resolve(Body.RESPONSE, {**stream, "stream_options": {"include_obfuscation": False}}) == (stream, ())
    for name, value in (("watermark", 0), ("num_beams", True), ("typical_p", False)):
        with pytest.raises(UnsupportedField):
            resolve(Body.CHAT, {name: value})


def test_a_name_of_a_newer_vllm_goes_to_its_classes() -> None:
    """And so does one that the table has for other bodies only."""
    engine: Any = ParsingEngine()
    engine.serving.fields = lambda route: frozenset({"thinking_token_budget", "min_p"})
    body = {"messages": HELLO, "thinking_token_budget": 5}
    assert not ignored_fields(dispatch.parse_route(Route.CHAT, body, engine))
    dispatch.parse_route(Route.RESPONSES, {"input": "a", "min_p": 0.5}, engine)
    assert [
        asked["thinking_token_budget" if "messages" in asked else "min_p"] for _, asked in engine.serving.asked
    ] == [5, 0.5]


@pytest.mark.parametrize("sent", [None, "null", "", "{}", {}, " null "])
@pytest.mark.parametrize("name", ["messages", "input"])
def test_no_arguments_of_an_earlier_call_are_an_empty_object(name: str, sent: object) -> None:
    assert arguments_of(name, sent) == "{}"


@pytest.mark.parametrize("sent", ["[]", "5", "{bad", "true", 5, [], False, 0, '"a"'])
@pytest.mark.parametrize("name", ["messages", "input"])
def test_arguments_that_are_no_object_are_named(name: str, sent: object) -> None:
    with pytest.raises(InvalidField) as caught:
        arguments_of(name, sent)
    places = {"messages": "messages[1].tool_calls[0].function.arguments", "input": "input[1].arguments"}
    assert caught.value.param == places[name]


def test_arguments_that_are_an_object_stay_or_become_its_text() -> None:
    assert arguments_of("messages", '{"a": 1}') == '{"a": 1}'
    assert arguments_of("messages", {"a": 1}) == '{"a":1}'


def arguments_of(name: str, sent: object) -> object:
    """The arguments that vLLM is handed."""
    call = {"name": "f", "arguments": sent}
    engine: Any = ParsingEngine()
    if name == "messages":
        turn = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]}
        dispatch.parse_route(Route.CHAT, {"messages": [*HELLO, turn]}, engine)
        return engine.serving.asked[-1][1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    items = [*HELLO, {"type": "function_call", "call_id": "a", **call}]
    dispatch.parse_route(Route.RESPONSES, {"input": items}, engine)
    return engine.serving.asked[-1][1]["input"][1]["arguments"]


def test_the_models_default_length_is_the_same_on_every_path() -> None:
    """A completion has 16 tokens by default, LMI's inputs 30. What the model or the endpoint allow may be less."""
    engines: list[Any] = [ParsingEngine(default_output=6), ParsingEngine(max_output=6)]
    for engine in engines:
        for bare in ({"prompt": "a"}, {"inputs": "a"}):
            call: Any = unframed(dispatch.parse(bare, engine))
            assert call.generation.sampling.max_tokens == 6
        dispatch.parse({"prompt": "a", "logprobs": 1}, engine)
        assert engine.serving.asked[-1][1]["max_tokens"] == 6


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "make docs"


ODD: list[Any] = [
    *(True, 0, -1, 5e-324, 1e308, 2**63, "", "x", "-9"),
    *(
        [],
        [None],
        [True],
        [5e-324],
        ["x"],
        [["x"]],
        [[]],
        [{}],
        {},
        {"x": None},
        {"x": ["x"]},
        {"type": 1},
        [{"type": 1}],
    ),
]


@pytest.mark.parametrize("body", COLUMNS)
def test_a_value_of_any_kind_for_any_name_is_taken_or_is_a_clients_error(body: Body) -> None:
    for name in NAMES:
        for value in ODD:
            path, document = body_with(name, body, stream=False)
            fields = document["parameters"] if body is Body.PARAMETERS else document
            fields[name] = copy.deepcopy(value)
            try:
                handed(path, document)
            except ClientError:
                continue
            except Exception as error:
                raise AssertionError(f"{path} {name}={value!r}") from error
