"""What a request says is done, or an error says so: every name of the table of fields on every route, through HTTP."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from handler.schemas.request_fields import Body, meanings
from tests.endpoint.serve_process import ServeProcess
from tests.request_field_table import BODIES, COLUMNS, HELLO, NAMES, body_with

pytestmark = pytest.mark.engine

HEADER = "X-Endpoint-Ignored-Fields"
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/jsonlines"}
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LONG = "Hello there " * 900
# It makes a message of the body.
LEFT_OUT = {("anthropic_version", Body.INPUTS, stream) for stream in (False, True)}
BEAMS: dict[str, Any] = {"prompt": "a", "max_tokens": 3, "use_beam_search": True, "n": 2}


def silent(endpoint: ServeProcess, name: str, body: Body, stream: bool) -> str | None:
    """What is wrong with the reply to a body with a name: it is neither honoured nor rejected nor listed."""
    path, document = body_with(name, body, stream=stream)
    prefix = "parameters." * (body is Body.PARAMETERS)
    content = b""
    try:
        with endpoint.client.stream("POST", path, json=document) as reply:
            for piece in reply.iter_raw():
                content += piece
    except httpx.RemoteProtocolError:  # a stream that ended in an error event
        return None if meanings(body)[name].honoured and b'"error"' in content else f"broken: {content[-300:]!r}"
    if reply.status_code == 200:
        listed = prefix + name in reply.headers.get(HEADER, "").split(", ")
        meaning = meanings(body)[name]
        honoured = meaning.honoured or (meaning.newer and not listed)  # by this vLLM's own classes
        return None if listed != honoured else f"200, listed: {listed}"
    error = json.loads(content)["error"]
    named = (error["param"] or "").startswith(prefix + name) or f"'{name}'" in error["message"]
    needs_more = (name, error["param"]) in {("tool_choice", "max_tokens"), ("length_penalty", "use_beam_search")}
    return None if reply.status_code in (400, 404) and (named or needs_more) else f"{reply.status_code} {error}"


def test_every_name_on_every_route_is_honoured_or_rejected_or_listed(endpoint: ServeProcess) -> None:
    places = [
        (name, body, stream)
        for name in NAMES
        for body in COLUMNS
        for stream in (False, True)
        if (name, body, stream) not in LEFT_OUT
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: silent(endpoint, *place), places))
    assert [(place, problem) for place, problem in zip(places, found, strict=True) if problem] == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        # The issue's own words, as they are typed.
        (CHAT, {"messages": HELLO, "extra_body": {"model": "sample"}}, "extra_body"),
        (CHAT, {"messages": HELLO, "max_new_tokens": 5}, "max_new_tokens"),
        (CHAT, {"messages": HELLO, "enable_thinking": False}, "enable_thinking"),
        (CHAT, {"messages": HELLO, "adapters": "nope"}, "adapters"),
        ("/invocations", {"inputs": "a", "max_tokens": 5}, "max_tokens"),
        ("/invocations", {"inputs": "a", "adapter_id": "x"}, "adapter_id"),
        ("/invocations", {"inputs": "a", "adapters": "nope"}, "adapters"),
        (
            "/invocations",
            {"inputs": "a", "parameters": {"prompt_lookup_num_tokens": 3}},
            "parameters.prompt_lookup_num_tokens",
        ),
        (CHAT, {"messages": HELLO, "bad_words": [" "]}, "bad_words[0]"),
        (CHAT, {"messages": HELLO, "bad_words": ["a", "\n\u00a0"]}, "bad_words[1]"),
        (COMPLETIONS, {**BEAMS, "length_penalty": -1e308}, "length_penalty"),
        (COMPLETIONS, {**BEAMS, "length_penalty": 1e308, "echo": True}, "length_penalty"),
        (COMPLETIONS, {**BEAMS, "length_penalty": "nan"}, "length_penalty"),
        (COMPLETIONS, {**BEAMS, "echo": True, "logprobs": 1}, "logprobs"),
        (CHAT, {"messages": HELLO, "max_tokens": 3, "length_penalty": 2.0}, "length_penalty"),
        (COMPLETIONS, {**BEAMS, "stop": ["b"]}, "stop"),
        (CHAT, {**BEAMS, "messages": HELLO, "response_format": {"type": "json_object"}}, "response_format"),
        (RESPONSES, {"input": "a", "top_k": "9" * 400}, "top_k"),
        (RESPONSES, {"input": "a", "temperature": "nan"}, "temperature"),
        (RESPONSES, {"input": "a", "repetition_penalty": "inf"}, "repetition_penalty"),
        (RESPONSES, {"input": "a", "seed": True}, "seed"),
        (RESPONSES, {"input": "a", "max_output_tokens": 2.5}, "max_output_tokens"),
        (RESPONSES, {"input": "a", "logit_bias": {"5": "nan"}}, "logit_bias.5"),
        (CHAT, {"messages": HELLO, "chat_template": "{{ a }}"}, "chat_template"),
        (RESPONSES, {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_an_error_names_the_field(endpoint: ServeProcess, path: str, body: dict[str, Any], param: str) -> None:
    reply = endpoint.client.post(path, json=body)
    assert (reply.status_code in (400, 404), reply.json()["error"]["param"]) == (True, param), reply.text


def test_a_beam_search_with_an_even_penalty_is_answered(endpoint: ServeProcess) -> None:
    for fields in ({"length_penalty": 0}, {"length_penalty": 0, "echo": True}, {"length_penalty": -10}):
        assert endpoint.client.post(COMPLETIONS, json={**BEAMS, **fields}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES, {"input": "a", "include": ["message.output_text.logprobs"], "top_logprobs": None}),
        (RESPONSES, {"input": "a", "parallel_tool_calls": None, "store": None, "truncation": None, "stop": None}),
        (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": None, "n": None, "stop": None}),
        (COMPLETIONS, {"prompt": "a", "logprobs": 1, "echo": None, "presence_penalty": None, "max_tokens": None}),
    ],
)
def test_null_is_the_default(endpoint: ServeProcess, path: str, body: dict[str, Any], stream: bool) -> None:
    reply = endpoint.client.post(path, json={**body, "stream": stream})
    assert (reply.status_code, '"error":{' in reply.text) == (200, False), reply.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}], "max_tokens": 5}),
        (CHAT, {"messages": [{"role": "user", "content": LONG}], "max_tokens": 5, "logprobs": True}),
        (COMPLETIONS, {"prompt": LONG}),
        (COMPLETIONS, {"prompt": LONG, "logprobs": 1}),
        (RESPONSES, {"input": LONG}),
        ("/v1/messages", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 5}),
        ("/invocations", {"inputs": LONG}),
    ],
)
def test_a_prompt_that_is_too_long_is_counted_as_a_whole(
    endpoint: ServeProcess, path: str, body: dict[str, Any]
) -> None:
    counted = {"prompt": LONG} if {"prompt", "inputs"} & {*body} else {"messages": [{"role": "user", "content": LONG}]}
    tokens = endpoint.client.post("/tokenize", json=counted).json()["count"]
    numbers = {
        int(number) for number in re.findall(r"\d+", endpoint.client.post(path, json=body).json()["error"]["message"])
    }
    assert tokens > 2000
    assert numbers & {tokens, tokens + 1}  # vLLM's responses begin with two marks of the begin


@pytest.mark.parametrize("arguments", ["null", '"null"', '""', "{}", '"{}"', '{"a": 1}'])
def test_a_call_without_arguments_is_part_of_a_history(endpoint: ServeProcess, arguments: str) -> None:
    assert history(endpoint, arguments).status_code == 200


@pytest.mark.parametrize("arguments", ['"[]"', '"5"', '"{bad"', "5", "[]", "false"])
def test_arguments_that_are_no_object_are_named(endpoint: ServeProcess, arguments: str) -> None:
    error = history(endpoint, arguments).json()["error"]
    assert error["param"] == "messages[1].tool_calls[0].function.arguments"


def history(endpoint: ServeProcess, arguments: str) -> httpx.Response:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "ARGUMENTS"}}
    messages = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}, *HELLO]
    body = json.dumps({"messages": messages, "max_tokens": 2}).replace('"ARGUMENTS"', arguments)
    return endpoint.client.post(CHAT, content=body, headers=JSON)


def test_json_lines_of_the_wrong_type_are_told_the_right_one(endpoint: ServeProcess) -> None:
    lines = b'{"prompt": "a", "max_tokens": 1}\n{"prompt": "b", "max_tokens": 1}\n'
    error = endpoint.client.post("/invocations", content=lines, headers=JSON).json()["error"]
    assert "application/jsonlines" in error["message"]
    assert endpoint.client.post("/invocations", content=lines, headers=LINES).status_code == 200
    error = endpoint.client.post("/invocations", content=b'{"prompt": "a"} }', headers=JSON).json()["error"]
    assert "application/jsonlines" not in error["message"]


def test_a_name_without_an_effect_is_in_the_header_and_once_in_the_log(endpoint: ServeProcess) -> None:
    """On the loop and in a thread, whole and streamed, of lines; not where a name is honoured."""
    stray = {"zq_nobody": 1, "user": "me", "zq\r\nX-Evil: 1": 2}
    listed = "zq_nobody, user, zq??X-Evil??1"
    for path, body in BODIES.values():
        for extra in ({}, {"stream": True}):
            reply = endpoint.client.post(path, json={**body, **stray, **extra})
            expected = listed.replace("user, ", "") if path == RESPONSES else listed
            assert (reply.status_code, reply.headers[HEADER]) == (200, expected), reply.text
            assert HEADER not in endpoint.client.post(path, json={**body, **extra}).headers
    chat = {"messages": HELLO, "max_tokens": 2, "logprobs": True, **stray}
    assert endpoint.client.post(CHAT, json=chat).headers[HEADER] == listed
    lines = "\n".join(json.dumps({"prompt": "a", "max_tokens": 1, name: 1}) for name in ("zq_first", "zq_nobody"))
    reply = endpoint.client.post("/invocations", content=lines, headers=LINES)
    assert reply.headers[HEADER] == "zq_first, zq_nobody"
    endpoint.until(lambda: "has the field 'zq_first'" in endpoint.log, 5)
    assert endpoint.log.count("has the field 'zq_nobody'") == 1
    assert endpoint.log.count("has the field 'zq_first'") == 1
