"""langchain-aws: `SagemakerEndpoint` and `ChatSagemakerEndpoint`, with the content handlers that a user writes.

Seen in its sources (llms and chat_models/sagemaker_endpoint.py): a stream is read line by line, and `transform_output`
is given each line; a stream that does not end with a line's end makes it read for ever.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_aws.chat_models.sagemaker_endpoint import ChatModelContentHandler, ChatSagemakerEndpoint
from langchain_aws.llms import SagemakerEndpoint
from langchain_aws.llms.sagemaker_endpoint import LLMContentHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage

from tests.clients.asked import ANSWER, CHOSEN, ENDPOINT, EVERY_SAGEMAKER, GIVEN, NAME, PROMPT, QUESTION, REGION, TOOL

pytestmark = EVERY_SAGEMAKER


class Texts(LLMContentHandler):
    """TGI's and LMI's body; its stream's lines are tokens."""

    content_type = "application/json"
    accepts = "application/json"

    def __init__(self, stream: bool = False) -> None:
        self.stream = stream

    def transform_input(self, prompt: str, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"inputs": prompt, "parameters": model_kwargs, "stream": self.stream}).encode()

    def transform_output(self, output: Any) -> str:
        if not self.stream:
            return str(json.loads(output.read())["generated_text"])
        token = json.loads(output)["token"]
        return "" if token["special"] else str(token["text"])


class Chats(ChatModelContentHandler):
    """OpenAI's body; its stream's lines are server-sent events, every other one empty."""

    content_type = "application/json"
    accepts = "application/json"

    def __init__(self, stream: bool = False) -> None:
        self.stream = stream

    def transform_input(self, prompt: Any, model_kwargs: dict[str, Any]) -> bytes:
        return json.dumps({"messages": prompt, "stream": self.stream, **model_kwargs}).encode()

    def transform_output(self, output: Any) -> Any:
        if not self.stream:
            message = json.loads(output.read())["choices"][0]["message"]
            calls = [call["function"] for call in message.get("tool_calls") or ()]
            named: Any = [{"name": one["name"], "args": json.loads(one["arguments"]), "id": ""} for one in calls]
            return AIMessage(content=message["content"] or "", tool_calls=named)
        line = output.removeprefix(b"data: ")
        if not line or line == b"[DONE]":
            return AIMessageChunk(content="")
        return AIMessageChunk(content=json.loads(line)["choices"][0]["delta"].get("content") or "")


def texts(stream: bool) -> SagemakerEndpoint:
    return SagemakerEndpoint(
        endpoint_name=ENDPOINT,
        region_name=REGION,
        content_handler=Texts(stream),
        model_kwargs={"max_new_tokens": 100, "do_sample": False},
    )


def chats(stream: bool) -> ChatSagemakerEndpoint:
    return ChatSagemakerEndpoint(
        endpoint_name=ENDPOINT,
        region_name=REGION,
        content_handler=Chats(stream),
        model_kwargs={"temperature": 0, "max_tokens": 100},
    )


def test_a_text_whole_and_streamed() -> None:
    assert texts(False).invoke(PROMPT) == ANSWER
    pieces = list(texts(True).stream(PROMPT))
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


def test_a_chat_whole_and_streamed() -> None:
    assert chats(False).invoke([HumanMessage(QUESTION)]).content == ANSWER
    pieces = [chunk.content for chunk in chats(True).stream([HumanMessage(QUESTION)])]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 3


def test_the_conversation_as_langchain_writes_it_is_taken() -> None:
    said = [SystemMessage("Be brief."), HumanMessage(QUESTION), AIMessage(ANSWER), HumanMessage(QUESTION)]
    assert chats(False).invoke(said).content


def test_a_tool_is_called() -> None:
    model = chats(False)
    assert model.model_kwargs is not None
    model.model_kwargs.update(tools=[TOOL], tool_choice=CHOSEN)
    (call,) = model.invoke([HumanMessage(QUESTION)]).tool_calls
    assert (call["name"], call["args"]) == (NAME, GIVEN)


def test_stop_words_end_the_text() -> None:
    assert texts(False).invoke(PROMPT, stop=[ANSWER[5:8]]) == ANSWER[:5]


def test_the_containers_refusal_is_told() -> None:
    with pytest.raises(Exception, match="context is 1024"):
        texts(False).invoke(PROMPT, max_new_tokens=100_000)
    with pytest.raises(Exception, match="context is 1024"):
        list(texts(True).stream(PROMPT, max_new_tokens=100_000))
