"""invoke_endpoint, as a user of plain boto3 meets it."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.gateway_process import GatewayProcess, runtime_client
from tests.local_sagemaker.scripted_container import Exchange, ScriptedContainer


def model_error(gateway: GatewayProcess, body: bytes = b"") -> dict[str, Any]:
    """What boto3's error holds of a call that the container fails."""
    with pytest.raises(gateway.runtime.exceptions.ModelError) as caught:
        gateway.runtime.invoke_endpoint(EndpointName="sample", Body=body)
    told: dict[str, Any] = caught.value.response
    return told


def test_body_and_headers_cross_in_both_directions(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    seen: list[Exchange] = []

    def script(exchange: Exchange) -> None:
        seen.append(exchange)
        headers = {
            "Content-Type": "text/x-reply; charset=utf-8",
            "X-Amzn-SageMaker-Custom-Attributes": "trace=2",
            "X-Amzn-SageMaker-New-Session-Id": "s1; Expires=2030-01-01T00:00:00Z",
            "X-Amzn-SageMaker-Closed-Session-Id": "s0",
            "X-Of-The-Container": "stays behind",
        }
        exchange.reply("größe".encode(), headers=headers)

    container.script = script
    reply = gateway.runtime.invoke_endpoint(
        EndpointName="sample",
        Body=b"\x00\xffbytes",
        ContentType="application/x-request",
        Accept="text/x-reply",
        CustomAttributes="trace=1",
        TargetModel="a/model.tar.gz",
        TargetVariant="AllTraffic",
        InferenceId="inference-7",
        InferenceComponentName="component-1",
        SessionId="NEW_SESSION",
        PrefixAwareId="prefix-3",
    )

    assert (seen[0].path, seen[0].body) == ("/invocations", b"\x00\xffbytes")
    at_container = {name.lower(): value for name, value in seen[0].headers.items()}
    assert at_container.pop("host") == container.url.removeprefix("http://")
    assert at_container == {
        "content-length": "7",
        "content-type": "application/x-request",
        "accept": "text/x-reply",
        "x-amzn-sagemaker-custom-attributes": "trace=1",
        "x-amzn-sagemaker-target-model": "a/model.tar.gz",
        "x-amzn-sagemaker-target-variant": "AllTraffic",
        "x-amzn-sagemaker-inference-id": "inference-7",
        "x-amzn-sagemaker-inference-component": "component-1",
        "x-amzn-sagemaker-session-id": "NEW_SESSION",
        "x-amzn-sagemaker-prefix-aware-id": "prefix-3",
    }

    assert reply["Body"].read().decode() == "größe"
    assert reply["ContentType"] == "text/x-reply; charset=utf-8"
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    assert reply["CustomAttributes"] == "trace=2"
    assert reply["NewSessionId"] == "s1; Expires=2030-01-01T00:00:00Z"
    assert reply["ClosedSessionId"] == "s0"
    assert reply["ResponseMetadata"]["RequestId"]
    assert "x-of-the-container" not in reply["ResponseMetadata"]["HTTPHeaders"]


def test_a_container_sees_no_header_that_sagemaker_does_not_know(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    headers = {
        "X-Secret": "1",
        "Cookie": "c",
        "Authorization": "a",
        "X-Amzn-SageMaker-Adapter-Identifier": "lora",
    }
    reply = httpx.post(f"{gateway.url}/endpoints/sample/invocations", content=b"hi", headers=headers)
    assert {name.lower() for name in reply.json()["headers"]} == {
        "host",
        "content-length",
        "accept",
        "x-amzn-sagemaker-adapter-identifier",
    }


def test_a_large_body_arrives_whole(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    container.script = lambda exchange: exchange.reply(exchange.body[::-1])
    body = bytes(range(256)) * 4096 * 20
    assert gateway.runtime.invoke_endpoint(EndpointName="sample", Body=body)["Body"].read() == body[::-1]


@pytest.mark.parametrize(("status", "side"), [(400, "client"), (503, "server")])
def test_an_error_of_the_container_is_a_model_error_with_its_fields(
    container: ScriptedContainer, gateway: GatewayProcess, status: int, side: str
) -> None:
    container.script = lambda exchange: exchange.reply(b'{"error": "no such knob"}', status)
    told = model_error(gateway)
    assert told["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert told["OriginalStatusCode"] == status
    assert json.loads(told["OriginalMessage"]) == {"error": "no such knob"}
    assert told["LogStreamArn"] == "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/sample"
    assert told["Error"]["Message"] == (
        f'Received {side} error ({status}) from primary with message "{{"error": "no such knob"}}". See '
        "https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1#logEventViewer:group="
        "/aws/sagemaker/Endpoints/sample in account 123456789012 for more information."
    )


def test_a_container_may_refuse_a_body_that_it_has_not_read(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.reply(b"too long for me", 413)
        exchange.close()

    container.script, container.reads_bodies = script, False
    told = model_error(gateway, bytes(20_000_000))
    assert (told["OriginalStatusCode"], told["OriginalMessage"]) == (413, "too long for me")


def test_messages_keep_to_the_models_length(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    container.script = lambda exchange: exchange.reply(b"x" * 5000, 500)
    told = model_error(gateway)
    assert len(told["OriginalMessage"]) == len(told["Error"]["Message"]) == 2048
    assert told["Error"]["Message"].endswith("for more information.")


def test_a_container_that_says_nothing_in_time_is_a_model_error(
    container: ScriptedContainer, strict_gateway: GatewayProcess
) -> None:
    hung_up: list[bool] = []
    noticed = threading.Event()

    def script(exchange: Exchange) -> None:
        hung_up.append(exchange.peer_hung_up(within=5))
        noticed.set()

    container.script = script
    told = model_error(strict_gateway)
    assert told["OriginalStatusCode"] == 0
    assert "Your invocation timed out while waiting for a response from container primary." in told["Error"]["Message"]
    assert noticed.wait(5)
    assert hung_up == [True]


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
)
def test_a_container_that_sends_byte_by_byte_is_out_of_time(
    container: ScriptedContainer, strict_gateway: GatewayProcess, head: bytes
) -> None:
    container.script = lambda exchange: exchange.trickle(head, 5)
    began = time.monotonic()
    told = model_error(strict_gateway)
    assert (told["OriginalStatusCode"], "timed out" in told["OriginalMessage"]) == (0, True)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("begun", [False, True])
def test_a_container_that_hangs_up_is_a_model_error(
    container: ScriptedContainer, gateway: GatewayProcess, begun: bool
) -> None:
    def script(exchange: Exchange) -> None:
        if begun:
            exchange.begin()
            exchange.send(b"half a re")
        exchange.break_off()

    container.script = script
    told = model_error(gateway)
    assert told["OriginalStatusCode"] == 0
    assert "closed before the response was complete" in told["OriginalMessage"]


@pytest.mark.parametrize("value", ["a;\r\n b=c", "a\x01b"])
def test_a_header_that_no_client_would_get_is_a_model_error(
    container: ScriptedContainer, gateway: GatewayProcess, value: str
) -> None:
    container.script = lambda exchange: exchange.reply(b"{}", headers={"Content-Type": value})
    told = model_error(gateway)
    assert told["OriginalStatusCode"] == 0
    assert "sent no valid HTTP" in told["OriginalMessage"]


def test_a_container_that_is_down_is_service_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    gateway = GatewayProcess(nobody)
    try:
        with pytest.raises(gateway.runtime.exceptions.ServiceUnavailable, match="Connection refused") as caught:
            gateway.runtime.invoke_endpoint(EndpointName="sample", Body=b"")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        with pytest.raises(gateway.runtime.exceptions.ServiceUnavailable):
            gateway.runtime.invoke_endpoint_with_response_stream(EndpointName="sample", Body=b"")
    finally:
        gateway.stop()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"EndpointName": "other"}, "Endpoint other of account 123456789012 not found."),
        ({"TargetVariant": "Blue"}, "Variant Blue of endpoint sample of account 123456789012 not found."),
        (
            {"CustomAttributes": "x" * 1025},
            "'customAttributes' failed to satisfy constraint: .* equal to 1024",
        ),
    ],
)
def test_a_request_that_sagemaker_refuses_is_a_validation_error(
    gateway: GatewayProcess, call: dict[str, str], said: str
) -> None:
    with pytest.raises(gateway.runtime.exceptions.ValidationError, match=said) as caught:
        gateway.runtime.invoke_endpoint(**{"EndpointName": "sample", "Body": b"", **call})
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_body_over_the_limit_is_a_validation_error(
    container: ScriptedContainer, strict_gateway: GatewayProcess
) -> None:
    runtime = strict_gateway.runtime
    assert runtime.invoke_endpoint(EndpointName="sample", Body=b"x" * 1000)["Body"].read()
    for size in (1001, 8_000_000):
        with pytest.raises(runtime.exceptions.ValidationError, match=r"has oversize body.*1000 bytes"):
            runtime.invoke_endpoint(EndpointName="sample", Body=b"x" * size)


def test_an_operation_that_is_not_there_is_named_in_json_and_never_in_html(gateway: GatewayProcess) -> None:
    for method, path in [("POST", "/nowhere"), ("GET", "/endpoints/sample/invocations"), ("OPTIONS", "/")]:
        reply = httpx.request(method, gateway.url + path)
        assert reply.status_code == 404
        assert reply.headers["x-amzn-errortype"] == "UnknownOperationException"
        assert reply.json() == {"Message": f"{method} {path} is not an operation of this SageMaker runtime"}
    with pytest.raises(ClientError, match="UnknownOperationException"):
        runtime_client(gateway.url).invoke_endpoint_async(EndpointName="sample", InputLocation="s3://b/k")
