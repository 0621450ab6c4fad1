"""Anthropic's Messages API with the unchanged `anthropic` client, against the running endpoint."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from sample_model.facts import by_name, load
from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import version

if TYPE_CHECKING:
    import anthropic

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
ANSWER = by_name("ping").answer
TOOLS: Any = [
    {
        "name": "ask",
        "description": "asks",
        "input_schema": {
            "type": "object",
            "properties": {"status": {"enum": [200]}, "stage": {"enum": ["ready"]}},
            "required": ["status", "stage"],
            "additionalProperties": False,
        },
    }
]
GIVEN = {"status": 200, "stage": "ready"}


@pytest.fixture(scope="module")
def client(endpoint: ServeProcess) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=endpoint.url, api_key="unused", max_retries=0, timeout=60)


def body_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The client's own arguments; its version has no temperature, which older ones send."""
    extra = {"temperature": 0, **fields.pop("extra_body", {})}
    return {"model": "sample", "messages": MESSAGES, "max_tokens": 100, "extra_body": extra, **fields}


def ask(client: anthropic.Anthropic, **fields: Any) -> Any:
    return client.messages.create(**body_of(fields))


def streamed(client: anthropic.Anthropic, **fields: Any) -> Any:
    with client.messages.stream(**body_of(fields)) as stream:
        return stream.get_final_message()


def plain(message: Any) -> dict[str, Any]:
    """What must be equal, streamed and whole: all but the ids."""
    content = [{**block.model_dump(exclude_none=True), "id": ""} for block in message.content]
    return {
        "content": [{name: value for name, value in block.items() if name != "parsed_output"} for block in content],
        "stop": (message.stop_reason, message.stop_sequence),
        "usage": (message.usage.input_tokens, message.usage.output_tokens),
        "model": message.model,
    }


def test_a_message_is_answered(client: anthropic.Anthropic) -> None:
    message = ask(client)
    assert [block.text for block in message.content] == [ANSWER]
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message",
        "assistant",
        "sample",
        "end_turn",
    )
    assert message.id.startswith("msg_")
    counted = client.messages.count_tokens(model="sample", messages=MESSAGES)
    assert counted.input_tokens == message.usage.input_tokens > 0


def test_fifty_requests_are_the_same_streamed_and_whole(client: anthropic.Anthropic) -> None:
    draw = random.Random(20)
    for _ in range(50):
        question = draw.choice(load()).questions[0]
        content: Any = draw.choice([question, [{"type": "text", "text": question}]])
        fields: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        fields["max_tokens"] = draw.choice([1, 5, 100])
        if draw.random() < 0.3:
            fields["system"] = draw.choice(["Be brief.", [{"type": "text", "text": "Be brief."}]])
        if draw.random() < 0.3:
            fields["stop_sequences"] = draw.choice([["e"], ["the", "is"]])
        if draw.random() < 0.3:
            fields["tools"] = TOOLS
            fields["tool_choice"] = draw.choice([{"type": "tool", "name": "ask"}, {"type": "none"}])
        if draw.random() < 0.2:
            fields["messages"] = [*fields["messages"], {"role": "assistant", "content": "It"}]
        if "tools" in fields and fields["max_tokens"] < 100:
            del fields["tools"], fields["tool_choice"]
        assert plain(ask(client, **fields)) == plain(streamed(client, **fields)), fields


def test_a_tool_is_called_and_the_conversation_goes_on(client: anthropic.Anthropic) -> None:
    import anthropic

    for message in (
        ask(client, tools=TOOLS, tool_choice={"type": "tool", "name": "ask"}),
        streamed(client, tools=TOOLS, tool_choice={"type": "tool", "name": "ask"}),
    ):
        (call,) = message.content
        assert (call.type, call.name, call.input, message.stop_reason) == ("tool_use", "ask", GIVEN, "tool_use")
    used = {"type": "tool_use", "id": call.id, "name": "ask", "input": call.input}
    turns = [*MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "I ask."}, used]}]
    assert ask(client, messages=[*turns, *MESSAGES], tools=TOOLS).content[0].text == ANSWER
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "ready"}
    with pytest.raises(anthropic.BadRequestError, match="Unknown role: tool"):  # the sample model's template
        ask(client, messages=[*turns, {"role": "user", "content": [result]}], tools=TOOLS)


def test_a_call_that_the_limit_cuts_off_has_what_there_is(client: anthropic.Anthropic) -> None:
    for limit in range(1, 25):
        fields = {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "ask"}, "max_tokens": limit}
        reply = client.messages.create(**body_of(fields))
        (block,) = reply.content
        if block.type == "tool_use":
            assert type(block.input) is dict
        else:  # later versions parse what the model has written, which is no call yet
            assert (block.type, version() == "0.16.0") == ("text", False)


def test_a_json_schema_is_kept(client: anthropic.Anthropic) -> None:
    form: Any = {"format": {"type": "json_schema", "schema": TOOLS[0]["input_schema"]}}
    for message in (ask(client, output_config=form), streamed(client, output_config=form)):
        assert json.loads(message.content[0].text) == GIVEN


def test_a_stop_sequence_is_named_and_a_limit_is_one(client: anthropic.Anthropic) -> None:
    word = ANSWER.split()[2]
    for ask_it in (ask, streamed):
        message = ask_it(client, stop_sequences=[word])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word)
        assert message.content[0].text == ANSWER[: ANSWER.index(word)]
        assert ask_it(client, max_tokens=1).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [*MESSAGES, {"role": "user", "content": ["x"]}]}, "messages[1].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"extra_body": {"mcp_servers": [{"type": "url"}]}}, "mcp_servers"),
        ({"extra_body": {"stop_sequence": ["x"]}}, "stop_sequence"),
    ],
)
def test_a_wrong_field_is_named_in_anthropics_error(
    client: anthropic.Anthropic, fields: dict[str, Any], named: str
) -> None:
    import anthropic

    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(client, **fields, stream=stream)
        body: Any = caught.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert f"'{named}" in body["error"]["message"]
        assert body["error"]["param"].startswith(named)


def test_an_unknown_model_is_a_404_and_a_long_prompt_a_400(client: anthropic.Anthropic) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError) as absent:
        ask(client, model="claude")
    assert absent.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]  # the SDK's type is object
    with pytest.raises(anthropic.BadRequestError):
        ask(client, messages=[{"role": "user", "content": "a " * 5000}])


def test_a_body_of_invocations_with_anthropics_version_is_a_message(endpoint: ServeProcess) -> None:
    body = {"anthropic_version": "bedrock-2023-05-31", "messages": MESSAGES, "max_tokens": 100, "temperature": 0}
    reply = httpx.post(f"{endpoint.url}/invocations", json=body, timeout=60)
    assert reply.json()["content"] == [{"type": "text", "text": ANSWER}]
    header = {"X-Amzn-SageMaker-Custom-Attributes": "route=/v1/messages"}
    del body["anthropic_version"]
    reply = httpx.post(f"{endpoint.url}/invocations", json=body, headers=header, timeout=60)
    assert reply.json()["content"] == [{"type": "text", "text": ANSWER}]
