"""litellm's providers for servers with OpenAI's and Anthropic's API, against the container."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest

from tests.clients.asked import ANSWER, CHOSEN, GIVEN, MESSAGES, NAME, REFUSED, TOO_MANY, TOOL
from tests.endpoint.serve_process import ServeProcess

PROVIDERS = ["hosted_vllm", "openai", "anthropic"]


@pytest.fixture
def ask(endpoint: ServeProcess) -> Any:
    model = endpoint.client.get("/v1/models").json()["data"][0]["id"]

    def completion(provider: str, **fields: Any) -> Any:
        url = endpoint.url if provider == "anthropic" else f"{endpoint.url}/v1"
        options = {"temperature": 0, "max_tokens": 100, "num_retries": 0, **fields}
        return litellm.completion(
            model=f"{provider}/{model}", messages=MESSAGES, api_base=url, api_key="unused", **options
        )

    return completion


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_chat_whole_and_streamed(ask: Any, provider: str) -> None:
    assert ask(provider).choices[0].message.content == ANSWER
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(provider, stream=True)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_is_called_whole_and_streamed(ask: Any, provider: str) -> None:
    (call,) = ask(provider, tools=[TOOL], tool_choice=CHOSEN).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (NAME, GIVEN)
    chunks = list(ask(provider, tools=[TOOL], tool_choice=CHOSEN, stream=True))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (NAME, GIVEN)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_is_told(ask: Any, provider: str, stream: bool) -> None:
    with pytest.raises(litellm.BadRequestError, match=REFUSED):
        ask(provider, max_tokens=TOO_MANY, stream=stream)
