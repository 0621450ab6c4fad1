"""The SageMaker Python SDK, version 3: `Endpoint.invoke` of sagemaker-core, and the runtime client that it makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from sagemaker.core.resources import Endpoint
from sagemaker.core.utils.utils import SageMakerClient

from tests.clients.asked import (
    ANSWER,
    CHOSEN,
    ENDPOINT,
    EVERY_SAGEMAKER,
    GIVEN,
    NAME,
    QUESTION,
    REFUSED,
    TOO_MANY,
    TOOL,
)

pytestmark = EVERY_SAGEMAKER
CHAT = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}


@pytest.fixture
def client() -> Any:
    return Endpoint(endpoint_name=ENDPOINT)


def test_a_whole_reply(client: Any) -> None:
    reply = client.invoke(body=json.dumps(CHAT), content_type="application/json", accept="application/json")
    assert json.loads(reply.body.read())["choices"][0]["message"]["content"] == ANSWER


def test_a_tool_is_called(client: Any) -> None:
    reply = client.invoke(
        body=json.dumps({**CHAT, "tools": [TOOL], "tool_choice": CHOSEN}), content_type="application/json"
    )
    (call,) = json.loads(reply.body.read())["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (NAME, GIVEN)


def test_an_error_is_told(client: Any) -> None:
    with pytest.raises(ClientError, match=REFUSED):
        client.invoke(body=json.dumps({**CHAT, "max_tokens": TOO_MANY}), content_type="application/json")


@pytest.mark.xfail(
    raises=AttributeError,
    strict=True,
    reason="sagemaker-core 2.27.0 takes boto3's EventStream for a dict: utils/code_injection/codec.py",
)
def test_a_stream_by_its_parts(client: Any) -> None:
    body = json.dumps({**CHAT, "stream": True})
    reply = client.invoke_with_response_stream(body=body, content_type="application/json", accept="text/event-stream")
    assert text(reply.body) == ANSWER


def test_a_stream_by_the_client_that_the_sdk_makes() -> None:
    runtime = SageMakerClient().sagemaker_runtime_client
    reply = runtime.invoke_endpoint_with_response_stream(
        EndpointName=ENDPOINT, ContentType="application/json", Body=json.dumps({**CHAT, "stream": True})
    )
    assert text(reply["Body"]) == ANSWER


def text(body: Any) -> str:
    """Of a stream of chat chunks, in more parts than one."""
    parts = [event["PayloadPart"]["Bytes"] for event in body]
    assert len(parts) > 3
    events = [line[6:] for line in b"".join(parts).splitlines() if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)
