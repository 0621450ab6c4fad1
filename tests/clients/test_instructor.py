"""instructor's models over OpenAI's and Anthropic's API, against the container."""

from __future__ import annotations

from typing import Any, Literal

import anthropic
import instructor
import openai
import pytest
from instructor.core import InstructorRetryException
from pydantic import BaseModel

from tests.clients.asked import ANSWER, MESSAGES, REFUSED, TOO_MANY
from tests.endpoint.serve_process import ServeProcess


class Status(BaseModel):
    """A status."""

    status: Literal[200]


CLIENTS = ["tools", "json schema", "messages"]


@pytest.fixture
def create(endpoint: ServeProcess) -> Any:
    model = endpoint.client.get("/v1/models").json()["data"][0]["id"]

    def client(kind: str) -> Any:
        if kind == "messages":
            return instructor.from_anthropic(
                anthropic.Anthropic(base_url=endpoint.url, api_key="unused", max_retries=0), model=model
            )
        mode = instructor.Mode.TOOLS if kind == "tools" else instructor.Mode.JSON_SCHEMA
        own = openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="unused", max_retries=0)
        return instructor.from_openai(own, mode=mode, model=model)

    return client


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_model_is_made_by_a_tool_call_or_a_schema(create: Any, kind: str) -> None:
    made = create(kind).chat.completions.create(response_model=Status, messages=MESSAGES, max_tokens=100, max_retries=1)
    assert made.status == 200


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_model_is_made_from_a_stream(create: Any, kind: str) -> None:
    *_, last = create(kind).chat.completions.create_partial(
        response_model=Status, messages=MESSAGES, max_tokens=100, max_retries=1
    )
    assert last.status == 200


def test_a_chat_without_a_model(create: Any) -> None:
    reply = create("tools").chat.completions.create(response_model=None, messages=MESSAGES, temperature=0)
    assert reply.choices[0].message.content == ANSWER


@pytest.mark.parametrize("kind", CLIENTS)
def test_an_error_is_told(create: Any, kind: str) -> None:
    with pytest.raises(InstructorRetryException, match=REFUSED):
        create(kind).chat.completions.create(
            response_model=Status, messages=MESSAGES, max_tokens=TOO_MANY, max_retries=1
        )
