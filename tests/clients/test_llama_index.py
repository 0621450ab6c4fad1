"""llama-index's `OpenAILike`, against the container. Its `Anthropic` accepts the names of Anthropic's models only."""

from __future__ import annotations

from typing import Any, Literal

import openai
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, create_model

from tests.clients.asked import ANSWER, GIVEN, NAME, QUESTION, REFUSED, TOO_MANY
from tests.endpoint.serve_process import ServeProcess

ARGUMENTS: type[BaseModel] = create_model("Arguments", status=(Literal[200], ...))
TOOL = FunctionTool.from_defaults(lambda status: status, name=NAME, description="asks", fn_schema=ARGUMENTS)
MESSAGES = [ChatMessage(role="user", content=QUESTION)]


@pytest.fixture
def make(endpoint: ServeProcess) -> Any:
    name = endpoint.client.get("/v1/models").json()["data"][0]["id"]

    def llm(tokens: int = 100) -> OpenAILike:
        options: Any = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 1024}
        options |= {"max_tokens": tokens, "temperature": 0, "max_retries": 0}
        return OpenAILike(model=name, api_base=f"{endpoint.url}/v1", api_key="unused", **options)

    return llm


def test_a_chat_whole_and_streamed(make: Any) -> None:
    assert make().chat(MESSAGES).message.content == ANSWER
    pieces = [chunk.delta or "" for chunk in make().stream_chat(MESSAGES)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


def test_a_tool_is_called_whole_and_streamed(make: Any) -> None:
    llm = make()
    forced: Any = {"user_msg": QUESTION, "tool_required": True}
    (call,) = llm.get_tool_calls_from_response(llm.chat_with_tools([TOOL], **forced))
    assert (call.tool_name, call.tool_kwargs) == (NAME, GIVEN)
    *_, last = llm.stream_chat_with_tools([TOOL], **forced)
    (call,) = llm.get_tool_calls_from_response(last)
    assert (call.tool_name, call.tool_kwargs) == (NAME, GIVEN)


def test_an_error_is_told(make: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=REFUSED):
        make(TOO_MANY).chat(MESSAGES)
