"""The runtime of hosted endpoints: sessions, targets, the OpenAI path, limits."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import QUICK, Cloud, LocalService, until
from tests.local_sagemaker.test_endpoint_start import ask, started


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
    os.kill(lives_on["pid"], signal.SIGKILL)
    until(lambda: lives_on["instance"] not in str(cloud.instances(pair)))
    with pytest.raises(ClientError, match="does not exist, is closed or has expired"):
        session_call(cloud, pair, session)
    until(lambda: [each["state"] for each in cloud.instances(pair)] == ["Healthy"] * 2)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"TargetVariant": "never"}, "Variant never of endpoint pair of account 123456789012 not found."),
        ({"TargetModel": "a.tar.gz"}, "is not a multi-model endpoint"),
        ({"TargetContainerHostname": "second"}, "endpoint pair does not have several containers"),
        ({"EnableExplanations": "`true`"}, "endpoint pair does not have an explainer"),
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
    parts = list(cloud.stream(pair, 40))
    assert b"".join(parts).decode() == "".join(f"data: größe {number} of \n\n" for number in range(40))
    assert any(not part.endswith(b"\n\n") for part in parts)


def test_a_stream_that_breaks_off_is_a_model_stream_error(cloud: Cloud, pair: str) -> None:
    reply = cloud.stream(pair, 2, **{"break": True})
    with pytest.raises(ClientError, match="StreamBroken") as caught:
        list(reply)
    assert caught.value.response["Error"]["Code"] == "ModelStreamError"


def test_the_openai_path_reaches_the_containers_own(cloud: Cloud, pair: str) -> None:
    import openai

    base = f"{cloud.service.url}/endpoints/{pair}/openai/v1"
    told = httpx.post(f"{base}/chat/completions", json={"do": "echo"}, headers={"X-Secret": "1"}).json()
    assert told["path"] == "/v1/chat/completions"
    assert told["headers"].keys() == {"host", "content-length", "content-type", "accept"}
    failed = httpx.post(f"{base}/chat/completions", json={"do": "fail", "status": 429})
    assert (failed.status_code, failed.json()) == (429, {"error": "as asked"})
    with httpx.stream("POST", f"{base}/chat/completions", json={"do": "stream", "count": 3}) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.read().count(b"\n\n") == 3
    never = httpx.post(f"{cloud.service.url}/endpoints/never/openai/v1/chat/completions", content=b"")
    assert (never.status_code, never.headers["x-amzn-errortype"]) == (400, "ValidationError")
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=base, api_key="unused", max_retries=0).post(
            "/chat/completions", body={"do": "fail", "status": 429}, cast_to=object
        )


def test_the_openai_path_has_chats_only(cloud: Cloud, pair: str) -> None:
    """SageMaker has no other path of OpenAI's API: those of the container are for its own clients."""
    base = f"{cloud.service.url}/endpoints/{pair}/openai/v1"
    paths = ("completions", "embeddings", "responses", "load_lora_adapter", "chat/completions/../../models")
    replies = [httpx.post(f"{base}/{path}", json={}) for path in paths]
    replies += [httpx.get(f"{base}/{path}") for path in ("models", "files", "chat/completions")]
    assert {(reply.status_code, reply.headers["x-amzn-errortype"]) for reply in replies} == {
        (404, "UnknownOperationException")
    }


def test_a_broken_reply_on_the_openai_path_is_not_whole(cloud: Cloud, pair: str) -> None:
    url = f"{cloud.service.url}/endpoints/{pair}/openai/v1/chat/completions"
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(url, json={"do": "stream", "count": 1, "break": True})


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A service with low limits."""
    limits = ("--regular-seconds", "1.5", "--stream-seconds", "0.7")
    service = LocalService(tmp_path_factory.mktemp("hasty"), *QUICK, *limits)
    yield service
    service.down()


def test_the_time_limits_hold(hasty: LocalService) -> None:
    cloud = Cloud(hasty)
    started(cloud, "hasty")
    with pytest.raises(ClientError, match="Your invocation timed out") as caught:
        ask(cloud, "hasty", "wait", seconds=8)
    assert caught.value.response["Error"]["Code"] == "ModelError"
    reply = cloud.stream("hasty", 100, pause=0.05)
    with pytest.raises(ClientError, match="ModelInvocationTimeExceeded"):
        list(reply)


def test_the_state_is_the_owners(cloud: Cloud) -> None:
    assert (cloud.service.state / "running.json").stat().st_mode & 0o077 == 0
    assert (cloud.service.state / "settings.json").stat().st_mode & 0o077 == 0
