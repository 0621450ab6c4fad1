"""The two objects of an asynchronous request, as SageMaker writes them, in a real S3 server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handler.storage.storage_errors import BucketMissing
from model_packaging.async_reply import NoAnswerYet, put_request, wait_for_answer
from model_packaging.client import InvocationFailed

ERROR = {"message": 'Field "x": not so. Use 5.', "type": "invalid_request_error", "param": "x", "code": "invalid_value"}


def places(bucket: str, failure: bool = True) -> dict[str, str]:
    return {
        "output": f"s3://{bucket}/out/1.out",
        "failure": f"s3://{bucket}/out/1-error.out" if failure else "",
        "id": "1",
    }


def answered(s3: Any, bucket: str, body: bytes, key: str = "out/1.out") -> Any:
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    return wait_for_answer(places(bucket), 5, s3=s3)


def test_a_reply_is_an_object(s3: Any, bucket: str) -> None:
    reply = {"choices": [{"index": 0, "message": {"content": "süß"}}]}
    assert answered(s3, bucket, json.dumps(reply).encode()) == reply
    assert answered(s3, bucket, b"no JSON") == "no JSON"
    assert answered(s3, bucket, b"[1, 2]") == "[1, 2]"


def test_a_reply_that_was_asked_for_as_a_stream_is_its_text(s3: Any, bucket: str) -> None:
    events = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("a", "b")]
    stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    assert answered(s3, bucket, stream + b"data: [DONE]\n\n") == "ab"
    delta = b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "a"}}\n\n'
    assert answered(s3, bucket, delta + b'event: message_stop\ndata: {"type": "message_stop"}\n\n') == "a"
    with pytest.raises(InvocationFailed, match="Use 5"):
        answered(s3, bucket, stream + b"data: %b\n\n" % json.dumps({"error": ERROR}).encode())


def test_a_streamed_reply_may_be_json_lines_or_no_json_at_all(s3: Any, bucket: str) -> None:
    lines = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("a", "b")]
    assert answered(s3, bucket, "\n".join(map(json.dumps, lines)).encode()) == "ab"
    with pytest.raises(InvocationFailed, match="Use 5"):
        answered(s3, bucket, "\n".join(map(json.dumps, [*lines, {"error": ERROR}])).encode())
    assert answered(s3, bucket, b"data: no JSON\n\n") == "data: no JSON\n\n"


def test_a_failure_is_the_containers_own(s3: Any, bucket: str) -> None:
    original = json.dumps({"error": ERROR})
    said = f'Received client error (400) from primary with message "{original}". See https://x in account 1 for more.'
    with pytest.raises(InvocationFailed) as caught:
        answered(s3, bucket, said.encode(), "out/1-error.out")
    assert (caught.value.status, caught.value.error) == (400, ERROR)


def test_a_failure_of_sagemakers_is_its_words(s3: Any, bucket: str) -> None:
    with pytest.raises(InvocationFailed, match="The request expired") as caught:
        answered(s3, bucket, b"The request expired", "out/1-error.out")
    assert caught.value.status is None


def test_what_does_not_come_in_time_is_named(s3: Any, bucket: str) -> None:
    with pytest.raises(NoAnswerYet, match=r"within 0 s; the answer would be s3://.*/out/1.out.$"):
        wait_for_answer(places(bucket), 0, s3=s3)
    with pytest.raises(NoAnswerYet, match="no S3FailurePath"):
        wait_for_answer(places(bucket, failure=False), 0.01, s3=s3)


def test_a_bucket_that_is_none_is_not_waited_for(s3: Any) -> None:
    with pytest.raises(BucketMissing, match="NoSuchBucket"):
        wait_for_answer(places("nobody-has-this-bucket"), 60, s3=s3)


@pytest.mark.parametrize("location", ["bucket/key", "s3://bucket", "s3:///key"])
def test_a_request_goes_into_s3_only(s3: Any, location: str) -> None:
    with pytest.raises(ValueError, match="is no s3://bucket/key"):
        put_request(location, {}, s3=s3)
