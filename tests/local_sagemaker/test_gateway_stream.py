"""invoke_endpoint_with_response_stream, as a user of plain boto3 meets it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from local_sagemaker.gateway.container_connection import INCOMPLETE
from tests.local_sagemaker.gateway_process import GatewayProcess
from tests.local_sagemaker.scripted_container import Exchange, Script, ScriptedContainer

SECONDS = 5
TEXT = "Größe 大 🙂 ".encode() * 40


def stream(gateway: GatewayProcess, **call: Any) -> Any:
    return gateway.runtime.invoke_endpoint_with_response_stream(EndpointName="sample", Body=b"{}", **call)


def parts(reply: Any) -> Iterator[bytes]:
    for event in reply["Body"]:
        yield event["PayloadPart"]["Bytes"]


def send_text(exchange: Exchange) -> None:
    exchange.begin({"Content-Type": "text/event-stream"})
    for start in range(0, len(TEXT), 100):
        exchange.send(TEXT[start : start + 100])
    exchange.end()


def test_parts_joined_are_the_containers_bytes(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    container.script = send_text
    assert b"".join(parts(stream(gateway))) == TEXT


def test_headers_cross_in_both_directions(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    seen: list[dict[str, str]] = []

    def script(exchange: Exchange) -> None:
        seen.append({name.lower(): value for name, value in exchange.headers.items()})
        headers = {"Content-Type": "text/event-stream", "X-Amzn-SageMaker-Custom-Attributes": "trace=2"}
        exchange.begin(headers)
        exchange.end()

    container.script = script
    reply = stream(gateway, ContentType="application/json", Accept="text/x", CustomAttributes="trace=1", SessionId="s1")
    assert list(parts(reply)) == []
    assert seen[0]["content-type"] == "application/json"
    assert seen[0]["accept"] == "text/x"
    assert seen[0]["x-amzn-sagemaker-custom-attributes"] == "trace=1"
    assert seen[0]["x-amzn-sagemaker-session-id"] == "s1"
    assert "x-amzn-sagemaker-accept" not in seen[0]
    assert reply["ContentType"] == "text/event-stream"
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    assert reply["CustomAttributes"] == "trace=2"


@pytest.mark.parametrize("cut", ["1", "random"])
def test_cut_parts_split_characters_and_lose_nothing(container: ScriptedContainer, cut: str) -> None:
    container.script = send_text
    gateway = GatewayProcess(container.url, "--cut-parts", cut)
    try:
        received = list(parts(stream(gateway)))
    finally:
        gateway.stop()
    assert b"".join(received) == TEXT
    assert any(part[0] & 0xC0 == 0x80 for part in received), "no part begins inside a character"


def test_each_part_arrives_while_the_container_still_works(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    head_seen, first_seen, second_seen = threading.Event(), threading.Event(), threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin()
        assert head_seen.wait(SECONDS)
        exchange.send(b"first")
        assert first_seen.wait(SECONDS)
        exchange.send(b"second")
        assert second_seen.wait(SECONDS)
        exchange.end()

    container.script = script
    received = parts(stream(gateway))
    head_seen.set()
    assert next(received) == b"first"
    first_seen.set()
    assert next(received) == b"second"
    second_seen.set()
    assert list(received) == []


def test_chunks_that_come_together_stay_apart(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    """Clients such as litellm take a part for an event."""

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.send_together(b"data: 1\n\n", b"data: 2\n\n")
        exchange.end()

    container.script = script
    assert list(parts(stream(gateway))) == [b"data: 1\n\n", b"data: 2\n\n"]


def test_an_error_before_the_stream_is_a_model_error(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    container.script = lambda exchange: exchange.reply(b"not ready", 503)
    with pytest.raises(gateway.runtime.exceptions.ModelError) as caught:
        stream(gateway)
    assert caught.value.response["OriginalStatusCode"] == 503
    assert caught.value.response["OriginalMessage"] == "not ready"


def break_off(exchange: Exchange) -> None:
    exchange.begin()
    exchange.send(b"first")
    exchange.break_off()


def send_nonsense(exchange: Exchange) -> None:
    exchange.begin()
    exchange.send_no_http(b"first")
    exchange.peer_hung_up(within=SECONDS)


def take_too_long(exchange: Exchange) -> None:
    exchange.begin()
    exchange.send(b"first")
    exchange.peer_hung_up(within=SECONDS)


@pytest.mark.parametrize(
    ("script", "at", "said"),
    [
        (break_off, "gateway", f"StreamBroken: container primary: {re.escape(INCOMPLETE)}"),
        (send_nonsense, "gateway", r"StreamBroken: container primary: .* no valid HTTP.*"),
        (take_too_long, "strict_gateway", r"ModelInvocationTimeExceeded: .* within 0\.5 seconds.*"),
    ],
)
def test_what_arrived_before_a_stream_breaks_is_read_and_then_a_model_stream_error(
    container: ScriptedContainer, request: pytest.FixtureRequest, script: Script, at: str, said: str
) -> None:
    container.script = script
    received = parts(stream(request.getfixturevalue(at)))
    assert next(received) == b"first"
    with pytest.raises(EventStreamError) as caught:
        next(received)
    error = caught.value.response["Error"]
    assert error["Code"] == "ModelStreamError"
    assert re.fullmatch(said, error["Message"]), error


def test_a_stream_that_never_begins_is_a_model_error(
    container: ScriptedContainer, strict_gateway: GatewayProcess
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.peer_hung_up(within=SECONDS)

    container.script = script
    with pytest.raises(strict_gateway.runtime.exceptions.ModelError, match="Your invocation timed out"):
        stream(strict_gateway)


def test_a_client_that_leaves_frees_the_container_with_the_next_piece(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    noticed = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin()
        while not exchange.peer_hung_up(within=0.05):
            exchange.send(b"more")
        noticed.set()

    container.script = script
    reply = stream(gateway)
    assert next(parts(reply)) == b"more"
    reply["Body"].close()
    assert noticed.wait(SECONDS + 1)


def test_a_session_cannot_be_created_by_a_stream(gateway: GatewayProcess) -> None:
    with pytest.raises(gateway.runtime.exceptions.ValidationError, match="Value 'NEW_SESSION' at 'sessionId' failed"):
        stream(gateway, SessionId="NEW_SESSION")


def test_64_streams_run_at_once(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    all_here = threading.Barrier(64)

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.send(b"first")
        all_here.wait(SECONDS)
        exchange.send(b", second")
        exchange.end()

    container.script = script
    with ThreadPoolExecutor(64) as pool:
        texts = list(pool.map(lambda _: b"".join(parts(stream(gateway))), range(64)))
    assert texts == [b"first, second"] * 64


def test_a_slow_reader_gets_everything_and_holds_its_container_back(
    container: ScriptedContainer, gateway: GatewayProcess
) -> None:
    """40 MB for a client that does not read yet: the container must be the one that waits, not the gateway's memory."""
    begun, ended = threading.Event(), threading.Event()
    piece = b"0123456789abcdef" * 4096

    def script(exchange: Exchange) -> None:
        exchange.begin()
        begun.set()
        for _ in range(640):
            exchange.send(piece)
        exchange.end()
        ended.set()

    container.script = script
    reply = gateway.runtime.invoke_endpoint_with_response_stream(EndpointName="sample", Body=b"")
    assert begun.wait(5)
    assert not ended.wait(0.5)
    assert b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"]) == piece * 640
    assert ended.wait(5)
