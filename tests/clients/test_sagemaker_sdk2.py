"""The SageMaker Python SDK, version 2: `Predictor`, its serializers and its iterators over a stream.

Seen in its sources (base_predictor.py, iterators.py): without a serializer the body goes out as
application/octet-stream; `LineIterator` reads for ever where a stream does not end with a line's end.
"""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
import sagemaker
from botocore.exceptions import ClientError
from sagemaker.deserializers import JSONDeserializer, JSONLinesDeserializer
from sagemaker.huggingface.model import HuggingFacePredictor
from sagemaker.iterators import LineIterator
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONLinesSerializer, JSONSerializer

from tests.clients.asked import (
    ANSWER,
    CHOSEN,
    ENDPOINT,
    EVERY_SAGEMAKER,
    GIVEN,
    NAME,
    PROMPT,
    QUESTION,
    REFUSED,
    REGION,
    TOO_MANY,
    TOOL,
)

pytestmark = EVERY_SAGEMAKER
CHAT = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
INPUTS = {
    "inputs": PROMPT,
    "parameters": {"max_new_tokens": 100, "do_sample": False},
}


@pytest.fixture
def session() -> Any:
    boto = boto3.Session(region_name=REGION)
    return sagemaker.Session(boto_session=boto, sagemaker_runtime_client=boto.client("sagemaker-runtime"))


@pytest.fixture
def predictor(session: Any) -> Any:
    return Predictor(ENDPOINT, session, serializer=JSONSerializer(), deserializer=JSONDeserializer())


def test_a_chat(predictor: Any) -> None:
    assert predictor.predict(CHAT)["choices"][0]["message"]["content"] == ANSWER


def test_hugging_faces_predictor_needs_nothing_said(session: Any) -> None:
    assert HuggingFacePredictor(ENDPOINT, session).predict(INPUTS)["generated_text"] == ANSWER


def test_a_stream_line_by_line(predictor: Any) -> None:
    lines = [json.loads(line) for line in predictor.predict_stream({**INPUTS, "stream": True}, iterator=LineIterator)]
    assert "".join(line["token"]["text"] for line in lines if not line["token"]["special"]) == ANSWER
    assert lines[-1]["generated_text"] == ANSWER


def test_a_stream_of_events_by_its_bytes(predictor: Any) -> None:
    body = b"".join(predictor.predict_stream({**CHAT, "stream": True}))
    events = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    assert "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events) == ANSWER


def test_a_tool_is_called(predictor: Any) -> None:
    (call,) = predictor.predict({**CHAT, "tools": [TOOL], "tool_choice": CHOSEN})["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (NAME, GIVEN)


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_told(predictor: Any, stream: bool) -> None:
    ask = predictor.predict_stream if stream else predictor.predict
    with pytest.raises(ClientError, match=REFUSED):
        ask({**CHAT, "max_tokens": TOO_MANY, "stream": stream})


def test_json_lines_as_batch_transform_sends_them(session: Any) -> None:
    lines = Predictor(ENDPOINT, session, serializer=JSONLinesSerializer(), deserializer=JSONLinesDeserializer())
    replies = lines.predict([CHAT, INPUTS])
    assert replies[0]["choices"][0]["message"]["content"] == ANSWER
    assert replies[1]["generated_text"] == ANSWER


def test_a_body_without_a_serializer_is_refused_with_the_fix(session: Any) -> None:
    with pytest.raises(Exception, match="application/json"):
        Predictor(ENDPOINT, session).predict(json.dumps(CHAT).encode())
