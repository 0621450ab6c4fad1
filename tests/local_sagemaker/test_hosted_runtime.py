"""The runtime of hosted endpoints: sessions, targets, the OpenAI path, signatures, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from local_service import QUICK, Cloud, LocalService, until
from test_endpoint_start import ask, started


@pytest.fixture(scope="module")
def pair(cloud: Cloud) -> Iterator[str]:
    """An endpoint of two instances."""
    started(cloud, "pair", variant={"InitialInstanceCount": 2})
    yield "pair"
    cloud.delete("pair")


def session_call(cloud: Cloud, name: str, session: str, kind: str = "") -> dict[str, Any]:
    reply: dict[str, Any] = cloud.runtime.invoke_endpoint(
        EndpointName=name, SessionId=session, Body=json.dumps({"requestType": kind} if kind else {}).encode()
    )
    return reply


def test_a_session_stays_with_its_instance_until_it_is_closed(cloud: Cloud, pair: str) -> None:
    opened = session_call(cloud, pair, "NEW_SESSION", "NEW_SESSION")
    session, _, expires = opened["NewSessionId"].partition("; ")
    assert expires == "Expires=2099-01-01T00:00:00Z"
    pids = {json.loads(session_call(cloud, pair, session)["Body"].read())["pid"] for _ in range(12)}
    assert pids == {int(session.removeprefix("session-"))}
    assert {ask(cloud, pair)["pid"] for _ in range(20)} > pids
    streamed = cloud.runtime.invoke_endpoint_with_response_stream(EndpointName=pair, SessionId=session, Body=b"{}")
    told = json.loads(b"".join(event["PayloadPart"]["Bytes"] for event in streamed["Body"]))
    assert told["pid"] in pids
    assert session_call(cloud, pair, session, "CLOSE")["ClosedSessionId"] == session
    with pytest.raises(ClientError, match="does not exist, is closed or has expired") as caught:
        session_call(cloud, pair, session)
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_a_session_ends_with_its_instance(cloud: Cloud, pair: str) -> None:
    session = session_call(cloud, pair, "NEW_SESSION", "NEW_SESSION")["NewSessionId"].partition(";")[0]
    (lives_on,) = [each for each in cloud.instances(pair) if each["pid"] == int(session.removeprefix("session-"))]
    assert cloud.service.command("chaos", "kill", pair, "--instance", lives_on["instance"]).returncode == 0
    until(lambda: lives_on["instance"] not in str(cloud.instances(pair)))
    with pytest.raises(ClientError, match="does not exist, is closed or has expired"):
        session_call(cloud, pair, session)
    until(lambda: [each["state"] for each in cloud.instances(pair)] == ["Healthy"] * 2)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"TargetVariant": "never"}, "Variant never of endpoint pair of account 123456789012 not found."),
        ({"TargetModel": "a.tar.gz"}, "is not a multi-model endpoint"),
        ({"InferenceComponentName": "never"}, "Inference Component never of endpoint pair not found."),
        ({"EndpointName": "never"}, "Endpoint never of account 123456789012 not found."),
        ({"Body": bytes(25 * 1024 * 1024 + 1)}, "oversize body"),
        ({"CustomAttributes": "x" * 1025}, "less than or equal to 1024"),
    ],
)
def test_a_target_that_is_not_there_is_a_validation_error(
    cloud: Cloud, pair: str, members: dict[str, Any], said: str
) -> None:
    with pytest.raises(ClientError, match=said) as caught:
        cloud.runtime.invoke_endpoint(**{"EndpointName": pair, "Body": b"{}", **members})
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_stream_is_cut_at_arbitrary_bytes_and_whole(cloud: Cloud, pair: str) -> None:
    body = json.dumps({"do": "stream", "count": 40}).encode()
    reply = cloud.runtime.invoke_endpoint_with_response_stream(EndpointName=pair, Body=body)
    parts = [event["PayloadPart"]["Bytes"] for event in reply["Body"]]
    assert b"".join(parts).decode() == "".join(f"data: größe {number} of \n\n" for number in range(40))
    assert any(not part.endswith(b"\n\n") for part in parts)


def test_a_stream_that_breaks_off_is_a_model_stream_error(cloud: Cloud, pair: str) -> None:
    body = json.dumps({"do": "stream", "count": 2, "break": True}).encode()
    reply = cloud.runtime.invoke_endpoint_with_response_stream(EndpointName=pair, Body=body)
    with pytest.raises(ClientError, match="StreamBroken") as caught:
        list(reply["Body"])
    assert caught.value.response["Error"]["Code"] == "ModelStreamError"


def test_the_openai_path_reaches_the_containers_own(cloud: Cloud, pair: str) -> None:
    import openai

    base = f"{cloud.service.url}/endpoints/{pair}/openai/v1"
    told = httpx.post(f"{base}/chat/completions", json={"do": "echo"}, headers={"X-Secret": "1"}).json()
    assert told["path"] == "/v1/chat/completions"
    assert told["headers"].keys() == {"host", "content-length", "content-type", "accept"}
    assert httpx.get(f"{base}/models").json() == {"path": "/v1/models"}
    failed = httpx.post(f"{base}/chat/completions", json={"do": "fail", "status": 429})
    assert (failed.status_code, failed.json()) == (429, {"error": "as asked"})
    with httpx.stream("POST", f"{base}/completions", json={"do": "stream", "count": 3}) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.read().count(b"\n\n") == 3
    never = httpx.post(f"{cloud.service.url}/endpoints/never/openai/v1/models", content=b"")
    assert (never.status_code, never.headers["x-amzn-errortype"]) == (400, "ValidationError")
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=base, api_key="unused", max_retries=0).post(
            "/chat/completions", body={"do": "fail", "status": 429}, cast_to=object
        )


def test_a_broken_reply_on_the_openai_path_is_not_whole(cloud: Cloud, pair: str) -> None:
    url = f"{cloud.service.url}/endpoints/{pair}/openai/v1/completions"
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(url, json={"do": "stream", "count": 1, "break": True})


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A service that checks signatures and has low limits."""
    keys = ("--access-key", "AKIALOCAL", "--secret-key", "secret/+=", "--regular-seconds", "1.5")
    service = LocalService(tmp_path_factory.mktemp("signed"), *QUICK, *keys, "--stream-seconds", "0.7")
    yield service
    service.down()


def test_signatures_are_checked_where_keys_are_configured(signed: LocalService) -> None:
    cloud = Cloud(signed)
    started(cloud, "signed", OF_THE_MODEL="a b/ü")
    assert ask(cloud, "signed")["path"] == "/invocations"
    assert cloud.runtime.invoke_endpoint(EndpointName="signed", Body=b"{}", CustomAttributes="a=b;  c", Accept="*/*")
    wrong = {
        "UnrecognizedClientException": {"aws_access_key_id": "AKIAOTHER"},
        "InvalidSignatureException": {"aws_secret_access_key": "other"},
    }
    for code, keys in wrong.items():
        for service, call in (
            ("sagemaker", lambda client: client.list_models()),
            ("sagemaker-runtime", lambda client: client.invoke_endpoint(EndpointName="signed", Body=b"{}")),
        ):
            with pytest.raises(ClientError) as caught:
                call(signed.client(service, **keys))
            assert caught.value.response["Error"]["Code"] == code
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    with pytest.raises(ClientError, match="scoped to the region"):
        signed.client("sagemaker", region_name="eu-west-1").list_models()
    unsigned = httpx.post(f"{signed.url}/endpoints/signed/invocations", content=b"{}")
    assert (unsigned.status_code, unsigned.headers["x-amzn-errortype"]) == (403, "MissingAuthenticationTokenException")
    nonsense = {"Authorization": "AWS4-HMAC-SHA256 nonsense"}
    refused = httpx.post(f"{signed.url}/endpoints/signed/invocations", content=b"{}", headers=nonsense)
    assert refused.headers["x-amzn-errortype"] == "IncompleteSignatureException"


def test_a_signature_is_of_one_body_and_of_now(signed: LocalService) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = f"{signed.url}/endpoints/signed/invocations"
    request = AWSRequest("POST", url, {"Content-Type": "text/plain"}, b"one")
    SigV4Auth(Credentials("AKIALOCAL", "secret/+="), "sagemaker", "us-east-1").add_auth(request)
    headers = dict(request.headers.items())
    assert httpx.post(url, content=b"one", headers=headers).status_code in (200, 400)
    refused = httpx.post(url, content=b"two", headers=headers)
    assert refused.headers["x-amzn-errortype"] == "InvalidSignatureException"
    assert "does not match" in refused.json()["message"]
    old = {**headers, "X-Amz-Date": "20200101T000000Z"}
    old["Authorization"] = headers["Authorization"].replace(headers["X-Amz-Date"][:8], "20200101")
    assert "Signature expired" in httpx.post(url, content=b"one", headers=old).json()["message"]


def test_the_time_limits_hold(signed: LocalService) -> None:
    cloud = Cloud.__new__(Cloud)
    cloud.service, cloud.runtime, cloud.sagemaker = (
        signed,
        signed.client("sagemaker-runtime"),
        signed.client("sagemaker"),
    )
    if not cloud.exists("signed"):
        started(cloud, "signed")
    with pytest.raises(ClientError, match="Your invocation timed out") as caught:
        ask(cloud, "signed", "wait", seconds=8)
    assert caught.value.response["Error"]["Code"] == "ModelError"
    body = json.dumps({"do": "stream", "count": 100, "pause": 0.05}).encode()
    reply = cloud.runtime.invoke_endpoint_with_response_stream(EndpointName="signed", Body=body)
    with pytest.raises(ClientError, match="ModelInvocationTimeExceeded"):
        list(reply["Body"])


def test_the_chaos_commands_need_the_token(cloud: Cloud, pair: str) -> None:
    reply = httpx.post(f"{cloud.service.url}/_local/kill", json={"endpoint": pair})
    assert reply.status_code == 403
    assert (cloud.service.state / "running.json").stat().st_mode & 0o077 == 0
    assert Path(cloud.service.state / "registry.json").exists()
