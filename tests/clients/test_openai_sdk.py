"""OpenAI's own client: against the container, and by SageMaker's path for OpenAI's clients."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.clients.asked import ANSWER, CHOSEN, ENDPOINT, GIVEN, MESSAGES, NAME, QUESTION, REFUSED, TOO_MANY, TOOL
from tests.endpoint.serve_process import ServeProcess


@pytest.fixture
def of_container(endpoint: ServeProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="unused", max_retries=0)


@pytest.fixture(params=["container", "local SageMaker"])
def client(request: pytest.FixtureRequest, of_container: openai.OpenAI) -> openai.OpenAI:
    if request.param == "container":
        return of_container
    url = request.getfixturevalue("hosted")
    return openai.OpenAI(base_url=f"{url}/endpoints/{ENDPOINT}/openai/v1", api_key="unused", max_retries=0)


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "", "messages": MESSAGES, "temperature": 0, **fields})


def test_a_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    assert chat(client).choices[0].message.content == ANSWER
    pieces = [chunk.choices[0].delta.content or "" for chunk in chat(client, stream=True)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


def test_a_response_whole_and_streamed(of_container: openai.OpenAI) -> None:
    """SageMaker's path has chats only."""
    client = of_container
    body: Any = {"model": client.models.list().data[0].id, "input": QUESTION, "temperature": 0}
    assert client.responses.create(**body).output_text == ANSWER
    with client.responses.stream(**body) as stream:
        assert stream.get_final_response().output_text == ANSWER


def test_a_tool_is_called_whole_and_streamed(client: openai.OpenAI) -> None:
    (call,) = chat(client, tools=[TOOL], tool_choice=CHOSEN).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (NAME, GIVEN)
    deltas = [chunk.choices[0].delta for chunk in chat(client, tools=[TOOL], tool_choice=CHOSEN, stream=True)]
    calls = [call.function for delta in deltas for call in delta.tool_calls or ()]
    assert json.loads("".join(call.arguments or "" for call in calls)) == GIVEN
    assert [call.name for call in calls if call.name] == [NAME]


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_has_its_class_and_its_field(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match=REFUSED) as caught:
        chat(client, max_tokens=TOO_MANY, stream=stream)
    assert caught.value.param == "max_tokens"
