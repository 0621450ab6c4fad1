"""boto3's runtime client, unchanged, through a gateway and against a local SageMaker that hosts the endpoint."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.clients.asked import (
    ANSWER,
    CHOSEN,
    ENDPOINT,
    EVERY_SAGEMAKER,
    GIVEN,
    MESSAGES,
    NAME,
    REFUSED,
    TOO_MANY,
    TOOL,
)

pytestmark = EVERY_SAGEMAKER
CALL: Any = {"EndpointName": ENDPOINT, "ContentType": "application/json"}


def invoke(**fields: Any) -> Any:
    body = json.dumps({"messages": MESSAGES, "temperature": 0, **fields})
    return json.loads(boto3.client("sagemaker-runtime").invoke_endpoint(**CALL, Body=body)["Body"].read())


def streamed(**fields: Any) -> list[Any]:
    body = json.dumps({"messages": MESSAGES, "temperature": 0, "stream": True, **fields})
    reply = boto3.client("sagemaker-runtime").invoke_endpoint_with_response_stream(**CALL, Body=body)
    text = b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"])
    events = [line[6:] for line in text.splitlines() if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    return [json.loads(event)["choices"][0]["delta"] for event in events]


def test_a_chat_whole_and_streamed() -> None:
    assert invoke()["choices"][0]["message"]["content"] == ANSWER
    assert "".join(delta.get("content") or "" for delta in streamed()) == ANSWER


def test_a_tool_is_called_whole_and_streamed() -> None:
    (call,) = invoke(tools=[TOOL], tool_choice=CHOSEN)["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (NAME, GIVEN)
    deltas = streamed(tools=[TOOL], tool_choice=CHOSEN)
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    assert json.loads("".join(call.get("arguments") or "" for call in calls)) == GIVEN


@pytest.mark.parametrize("ask", [invoke, streamed])
def test_an_error_is_a_model_error_with_the_message(ask: Any) -> None:
    with pytest.raises(ClientError, match=REFUSED) as caught:
        ask(max_tokens=TOO_MANY)
    assert caught.value.response["Error"]["Code"] == "ModelError"
    assert caught.value.response["OriginalStatusCode"] == 400
