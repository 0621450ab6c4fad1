"""What a message means as a chat."""

from __future__ import annotations

from typing import Any

import pytest

from handler.errors import ClientError, InvalidField, UnsupportedField
from handler.schemas.anthropic.chat_document import chat_document
from handler.schemas.anthropic.message_fields import MessageFields, checked

FRENCH = {"type": "text", "text": "Answer in French."}
TOOL = {"name": "ask", "input_schema": {"properties": {}}}


def chat(**fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, **fields}
    return chat_document(checked(body, MessageFields))


def test_a_tools_call_and_its_result_keep_their_id_and_their_order() -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "ask", "input": {"city": "Ulm"}},
                {"type": "tool_use", "id": "t2", "name": "ask", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "tool_result", "tool_use_id": "t2"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    found = chat(messages=messages, system=[{"type": "text", "text": "Be brief."}], tools=[TOOL])
    text = {"type": "text", "text": "I look."}
    calls = [("t1", '{"city":"Ulm"}'), ("t2", "{}")]
    assert found["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [text],
            "tool_calls": [
                {"id": each, "type": "function", "function": {"name": "ask", "arguments": arguments}}
                for each, arguments in calls
            ],
            "reasoning": "hm",
        },
        {"role": "tool", "tool_call_id": "t1", "content": "rain"},
        {"role": "tool", "tool_call_id": "t2", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ]
    function = {"name": "ask", "parameters": {"type": "object", "properties": {}}}
    assert (found["tools"], found["tool_choice"]) == ([{"type": "function", "function": function}], "auto")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"stop_sequences": ["x"], "top_k": 0}, {"stop": ["x"]}),
        ({"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
        ({"stream": True}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            {"add_generation_prompt": False, "continue_final_message": True},
        ),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": [FRENCH]}]},
            {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": [FRENCH]}]},
        ),
    ],
)
def test_a_field_has_its_counterpart(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = chat(**fields)
    assert {name: found[name] for name in expected} == expected
    assert "top_k" not in found
    assert "tools" not in chat(tools=[TOOL], tool_choice={"type": "none"})


def test_an_image_is_a_url() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    (message,) = chat(messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])["messages"]
    assert message["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


@pytest.mark.parametrize(
    ("block", "error", "field"),
    [
        ({"type": "image", "source": {"type": "file"}}, InvalidField, "messages[0].content[0].source"),
        ({"type": "document"}, UnsupportedField, "messages[0].content[0].type"),
        ({"type": "text"}, InvalidField, "messages[0].content[0].text"),
        ({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}, InvalidField, "source"),
    ],
)
def test_a_block_that_cannot_be_used_is_named(block: dict[str, Any], error: type[Any], field: str) -> None:
    with pytest.raises(error) as caught:
        chat(messages=[{"role": "user", "content": [block]}])
    assert field in caught.value.field
    with pytest.raises(ClientError):
        chat(messages=[{"role": "system", "content": [block]}])


def test_turns_of_one_role_in_a_row_are_one() -> None:
    call = {"type": "tool_use", "id": "t", "name": "ask", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "rain"}
    turns = [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", [call]), ("user", [result]), ("user", "d")]
    messages = [{"role": role, "content": content} for role, content in turns]
    found = chat(messages=messages, tools=[TOOL])["messages"]
    assert [each["role"] for each in found] == ["user", "assistant", "tool", "user"]
    assert found[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (found[1]["content"], found[1]["tool_calls"][0]["id"]) == ([{"type": "text", "text": "c"}], "t")
    with pytest.raises(InvalidField, match=r"messages\[3\]"):
        chat(messages=messages[:4], tools=[TOOL])
