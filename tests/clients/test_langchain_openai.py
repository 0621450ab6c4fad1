"""langchain's `ChatOpenAI` and `ChatAnthropic`, and an agent of `langchain`, against the container."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from langchain.chat_models import init_chat_model
from langchain_core.tools import StructuredTool

from tests.clients.asked import ANSWER, GIVEN, NAME, QUESTION, REFUSED, SCHEMA, TOO_MANY
from tests.endpoint.serve_process import ServeProcess

TOOL = StructuredTool.from_function(lambda status: str(status), name=NAME, description="asks", args_schema=SCHEMA)
PROVIDERS = ["openai", "anthropic"]


@pytest.fixture
def chat(endpoint: ServeProcess) -> Any:
    model = endpoint.client.get("/v1/models").json()["data"][0]["id"]

    def make(provider: str, **fields: Any) -> Any:
        url = f"{endpoint.url}/v1" if provider == "openai" else endpoint.url
        options = {"temperature": 0, "max_tokens": 100, "max_retries": 0, "api_key": "unused", **fields}
        return init_chat_model(model, model_provider=provider, base_url=url, **options)

    return make


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_chat_whole_and_streamed(chat: Any, provider: str) -> None:
    assert chat(provider).invoke(QUESTION).text == ANSWER
    pieces = [chunk.text for chunk in chat(provider).stream(QUESTION)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_is_called_whole_and_streamed(chat: Any, provider: str) -> None:
    forced = chat(provider).bind_tools([TOOL], tool_choice=NAME)
    (call,) = forced.invoke(QUESTION).tool_calls
    assert (call["name"], call["args"]) == (NAME, GIVEN)
    chunks = list(forced.stream(QUESTION))
    (call,) = sum(chunks[1:], chunks[0]).tool_calls
    assert (call["name"], call["args"]) == (NAME, GIVEN)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_structured_output_is_of_the_schema(chat: Any, provider: str) -> None:
    schema = {"title": "status", "description": "a status", **SCHEMA}
    assert chat(provider).with_structured_output(schema, method="function_calling").invoke(QUESTION) == GIVEN


@pytest.mark.parametrize(("provider", "error"), [("openai", openai), ("anthropic", anthropic)])
def test_an_error_is_told(chat: Any, provider: str, error: Any) -> None:
    with pytest.raises(error.BadRequestError, match=REFUSED):
        chat(provider, max_tokens=TOO_MANY).invoke(QUESTION)
