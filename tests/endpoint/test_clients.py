"""Clients that need no venv of their own, against the running endpoint: curl, and the documented client over boto3."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from model_packaging.client import EndpointClient
from sample_model.facts import by_name
from tests.aws_keys import KEYS
from tests.endpoint.serve_process import ServeProcess
from tests.local_sagemaker.gateway_process import GatewayProcess

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
ANSWER = by_name("ping").answer
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
ODD = "Grüße, 世界 🚀 – Ελλάδα"


def curl(endpoint: ServeProcess, body: dict[str, Any], *options: str) -> str:
    assert shutil.which("curl"), "curl is a client of the endpoint, and part of what a machine for these tests has"
    command = ["curl", "-sS", "--fail-with-body", "--noproxy", "*", "-H", "Content-Type: application/json", *options]
    command += ["-d", json.dumps(body), f"{endpoint.url}/invocations"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_curl_whole_and_streamed(endpoint: ServeProcess) -> None:
    assert json.loads(curl(endpoint, CHAT))["choices"][0]["message"]["content"] == ANSWER
    lines = curl(endpoint, {**CHAT, "stream": True}, "-N").splitlines()
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events.pop() == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events) == ANSWER


def test_curl_over_http_1_0_and_with_expect(endpoint: ServeProcess) -> None:
    assert curl(endpoint, {**CHAT, "stream": True}, "-0", "-N").endswith("data: [DONE]\n\n")
    assert json.loads(curl(endpoint, CHAT, "-H", "Expect: 100-continue"))["choices"][0]["message"]["content"] == ANSWER


@pytest.fixture(scope="module")
def cutting(endpoint: ServeProcess) -> Iterator[EndpointClient]:
    """The documented client behind a gateway that makes a payload part of every byte."""
    gateway = GatewayProcess(endpoint.url, "--cut-parts", "1")
    yield EndpointClient("sample", runtime=boto3.client("sagemaker-runtime", endpoint_url=gateway.url, **KEYS))
    assert gateway.stop() == 0


def test_parts_that_cut_events_and_characters_are_put_together(cutting: EndpointClient) -> None:
    echo = {"prompt": ODD, "echo": True, "max_tokens": 2, "temperature": 0}
    assert "".join(cutting.text(echo)).startswith(ODD)
    parts = cutting._runtime.invoke_endpoint_with_response_stream(
        EndpointName="sample", ContentType="application/json", Body=json.dumps({**echo, "stream": True}).encode()
    )["Body"]
    cut = [part["PayloadPart"]["Bytes"] for part in parts]
    assert {len(one) for one in cut} == {1}
    assert "🚀".encode() in b"".join(cut), "a character of four bytes was in four parts"


def test_the_documented_client_gives_the_same_text_whole_and_streamed(cutting: EndpointClient) -> None:
    assert cutting.invoke(CHAT)["choices"][0]["message"]["content"] == ANSWER
    assert "".join(cutting.text(CHAT)) == ANSWER
    assert "".join(cutting.text({"inputs": QUESTION, "parameters": {"max_new_tokens": 8, "output_formatter": "sse"}}))
