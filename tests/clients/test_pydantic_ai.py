"""pydantic-ai's agents over OpenAI's and Anthropic's API, against the container."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.asked import ANSWER, QUESTION, REFUSED, TOO_MANY
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.anyio
MODELS = ["chat", "responses", "messages"]


class Status(BaseModel):
    """A status."""

    status: Literal[200]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def model(request: pytest.FixtureRequest, endpoint: ServeProcess) -> Any:
    name = endpoint.client.get("/v1/models").json()["data"][0]["id"]
    if request.param == "messages":
        return AnthropicModel(name, provider=AnthropicProvider(base_url=endpoint.url, api_key="unused"))
    kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
    return kind(name, provider=OpenAIProvider(base_url=f"{endpoint.url}/v1", api_key="unused"))


@pytest.mark.parametrize("model", MODELS, indirect=True)
async def test_a_chat_whole_and_streamed(model: Any) -> None:
    agent: Any = Agent(model, model_settings={"temperature": 0, "max_tokens": 100})
    assert (await agent.run(QUESTION)).output == ANSWER
    async with agent.run_stream(QUESTION) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


@pytest.mark.parametrize("model", ["chat", "messages"], indirect=True)
async def test_the_output_is_a_called_tool(model: Any) -> None:
    agent: Any = Agent(model, output_type=Status, model_settings={"temperature": 0, "max_tokens": 100})
    assert (await agent.run(QUESTION)).output == Status(status=200)
    async with agent.run_stream(QUESTION) as result:
        assert await result.get_output() == Status(status=200)


@pytest.mark.parametrize("model", MODELS, indirect=True)
async def test_an_error_has_its_status(model: Any) -> None:
    agent: Any = Agent(model, model_settings={"max_tokens": TOO_MANY})
    with pytest.raises(ModelHTTPError, match=REFUSED) as caught:
        await agent.run(QUESTION)
    assert caught.value.status_code == 400
