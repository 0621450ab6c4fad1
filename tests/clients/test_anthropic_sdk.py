"""Anthropic's own client, against the container."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from tests.clients.asked import ANSWER, GIVEN, MESSAGES, NAME, REFUSED, SCHEMA, TOO_MANY
from tests.endpoint.serve_process import ServeProcess

TOOL: Any = {"name": NAME, "description": "asks", "input_schema": SCHEMA}


@pytest.fixture
def client(endpoint: ServeProcess) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=endpoint.url, api_key="unused", max_retries=0)


def body(**fields: Any) -> Any:
    return {"model": "sample", "messages": MESSAGES, "max_tokens": 100, "extra_body": {"temperature": 0}, **fields}


def test_a_message_whole_and_streamed(client: anthropic.Anthropic) -> None:
    named = body(model=client.models.list().data[0].id)
    assert client.messages.create(**named).content[0].text == ANSWER
    with client.messages.stream(**named) as stream:
        pieces = list(stream.text_stream)
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


def test_a_tool_is_called_whole_and_streamed(client: anthropic.Anthropic) -> None:
    forced = body(model=client.models.list().data[0].id, tools=[TOOL], tool_choice={"type": "tool", "name": NAME})
    (block,) = client.messages.create(**forced).content
    assert (block.name, block.input) == (NAME, GIVEN)
    with client.messages.stream(**forced) as stream:
        (block,) = stream.get_final_message().content
    assert (block.name, block.input) == (NAME, GIVEN)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_has_its_class(client: anthropic.Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError, match=REFUSED):
        client.messages.create(**body(model=client.models.list().data[0].id, max_tokens=TOO_MANY), stream=stream)
