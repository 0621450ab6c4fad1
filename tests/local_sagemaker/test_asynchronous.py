"""InvokeEndpointAsync: input, output and failure objects in S3, expiry, and what is refused at the door."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import Cloud, until

CONFIG: dict[str, dict[str, Any]] = {
    "OutputConfig": {"S3OutputPath": "s3://models/out/", "S3FailurePath": "s3://models/failed"},
    "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 2},
}


@pytest.fixture(scope="module")
def queue(cloud: Cloud) -> Iterator[str]:
    cloud.model("queue")
    cloud.config("queue", {"ModelName": "queue"}, AsyncInferenceConfig=CONFIG)
    cloud.endpoint("queue", "queue")
    yield "queue"
    cloud.delete("queue")


def accept(cloud: Cloud, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    key = f"in/{uuid.uuid4()}.json"
    cloud.s3.put_object(Bucket="models", Key=key, Body=json.dumps(body).encode())
    accepted: dict[str, Any] = cloud.runtime.invoke_endpoint_async(
        **{"EndpointName": "queue", "InputLocation": f"s3://models/{key}", **more}
    )
    return accepted


def read(cloud: Cloud, uri: str) -> tuple[bytes, str] | None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        found = cloud.s3.get_object(Bucket=bucket, Key=key)
    except ClientError:
        return None
    return found["Body"].read(), found["ContentType"]


def arrived(cloud: Cloud, uri: str) -> bytes:
    until(lambda: read(cloud, uri) is not None)
    found = read(cloud, uri)
    assert found is not None
    return found[0]


@pytest.mark.slow
def test_an_answer_is_an_object(cloud: Cloud, queue: str) -> None:
    accepted = accept(cloud, {"do": "echo"}, InferenceId="id-1", ContentType="application/json", CustomAttributes="a=b")
    assert accepted["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert accepted["InferenceId"] == "id-1"
    assert accepted["OutputLocation"].startswith("s3://models/out/")
    assert accepted["FailureLocation"].startswith("s3://models/failed/")
    told = json.loads(arrived(cloud, accepted["OutputLocation"]))
    assert told["headers"]["x-amzn-sagemaker-inference-id"] == "id-1"
    assert told["headers"]["x-amzn-sagemaker-custom-attributes"] == "a=b"
    assert json.loads(told["body"]) == {"do": "echo"}
    found = read(cloud, accepted["OutputLocation"])
    assert found is not None
    assert found[1] == "application/json"
    assert read(cloud, accepted["FailureLocation"]) is None


def test_an_update_keeps_it_asynchronous(cloud: Cloud, queue: str) -> None:
    cloud.config("real-time", {"ModelName": "queue"})
    with pytest.raises(ClientError, match="AsyncInferenceConfig parameter cannot be removed") as caught:
        cloud.sagemaker.update_endpoint(EndpointName=queue, EndpointConfigName="real-time")
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    described = cloud.sagemaker.describe_endpoint(EndpointName=queue)
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "queue")


def test_an_output_may_have_a_name_of_its_own(cloud: Cloud, queue: str) -> None:
    accepted = accept(cloud, {}, S3OutputPathExtension="team/a", Filename="answer.json")
    assert accepted["OutputLocation"] == "s3://models/out/team/a/answer.json"
    assert arrived(cloud, accepted["OutputLocation"])


def test_an_inline_body_needs_no_object(cloud: Cloud, queue: str) -> None:
    accepted = cloud.runtime.invoke_endpoint_async(EndpointName=queue, Body=b'{"do": "echo", "inline": 1}')
    assert b"inline" in arrived(cloud, accepted["OutputLocation"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"do": "fail", "status": 400},
            'Received client error (400) from primary with message "{"error": "as asked"}"',
        ),
        ({"do": "fail", "status": 500}, "Received server error (500) from primary"),
        ({"do": "die"}, "did not complete its response"),
        ({"do": "stream", "count": 2}, "did not specify the required Content-Length header"),
    ],
)
def test_a_failure_is_an_object_too(cloud: Cloud, queue: str, body: dict[str, Any], said: str) -> None:
    accepted = accept(cloud, body)
    assert said in arrived(cloud, accepted["FailureLocation"]).decode()
    assert read(cloud, accepted["OutputLocation"]) is None
    until(lambda: any(each["state"] == "Healthy" for each in cloud.instances(queue)))


def test_an_input_that_is_missing_is_a_failure(cloud: Cloud, queue: str) -> None:
    accepted = cloud.runtime.invoke_endpoint_async(EndpointName=queue, InputLocation="s3://models/never")
    assert "s3://models/never can't be read" in arrived(cloud, accepted["FailureLocation"]).decode()


def test_a_request_may_time_out(cloud: Cloud, queue: str) -> None:
    accepted = accept(cloud, {"do": "wait", "seconds": 3}, InvocationTimeoutSeconds=1)
    assert "Your invocation timed out" in arrived(cloud, accepted["FailureLocation"]).decode()


def test_a_request_that_waits_too_long_expires(cloud: Cloud, queue: str) -> None:
    """RequestTTLSeconds has 60 as its least; the service of the tests lets 60 s pass in 1 s."""
    busy = [accept(cloud, {"do": "wait", "seconds": 2}) for _ in range(2)]
    late = accept(cloud, {"do": "echo"}, RequestTTLSeconds=60)
    assert "expired" in arrived(cloud, late["FailureLocation"]).decode()
    for accepted in busy:
        assert arrived(cloud, accepted["OutputLocation"])


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"RequestTTLSeconds": 59}, "greater than or equal to 60"),
        ({"RequestTTLSeconds": 21601}, "less than or equal to 21600"),
        ({"InvocationTimeoutSeconds": 3601}, "less than or equal to 3600"),
        ({"InputLocation": "models/x"}, "regular expression pattern"),
        ({"Filename": "../x"}, "regular expression pattern"),
        ({"S3OutputPathExtension": "s3://other"}, "regular expression pattern"),
        ({"Body": b"both"}, "Exactly one of InputLocation and Body"),
        ({"InputLocation": None, "Body": b"x" * 128_001}, "oversize"),
        ({"EndpointName": "never"}, "Endpoint never of account 123456789012 not found"),
    ],
)
def test_the_door_refuses(cloud: Cloud, queue: str, members: dict[str, Any], said: str) -> None:
    asked = {"EndpointName": queue, "InputLocation": "s3://models/x", **members}
    with pytest.raises(ClientError, match=said) as caught:
        cloud.runtime.invoke_endpoint_async(**{name: value for name, value in asked.items() if value is not None})
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_topics_are_refused(cloud: Cloud, queue: str) -> None:
    output = {**CONFIG["OutputConfig"], "NotificationConfig": {"SuccessTopic": "arn:aws:sns:us-east-1:123456789012:x"}}
    with pytest.raises(ClientError, match="NotificationConfig is not supported"):
        cloud.config("told", {"ModelName": queue}, AsyncInferenceConfig={"OutputConfig": output})


def test_each_kind_of_endpoint_has_its_call(cloud: Cloud, queue: str) -> None:
    with pytest.raises(ClientError, match="use InvokeEndpointAsync"):
        cloud.runtime.invoke_endpoint(EndpointName=queue, Body=b"")
    cloud.model("no-queue")
    cloud.config("no-queue", {"ModelName": "no-queue"})
    cloud.endpoint("no-queue", "no-queue")
    with pytest.raises(ClientError, match="is not an asynchronous endpoint"):
        cloud.runtime.invoke_endpoint_async(EndpointName="no-queue", InputLocation="s3://models/x")
    cloud.delete("no-queue")


def test_the_endpoint_describes_its_queue(cloud: Cloud, queue: str) -> None:
    described = cloud.sagemaker.describe_endpoint(EndpointName=queue)
    assert described["AsyncInferenceConfig"]["OutputConfig"] == CONFIG["OutputConfig"]
    assert time.time() > described["CreationTime"].timestamp()
