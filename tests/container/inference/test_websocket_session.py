"""Bidirectional streaming over a real gunicorn: a client library's frames, and bytes that no library would send."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from handler.schemas.openai.model_names import ADAPTER_HEADER
from tests.container.raw_http import request
from tests.container.scripted_engine import MAX_BODY, PLACES
from tests.container.scripted_process import THREADS, Server, served
from tests.handler.waiting import eventually

PATH = "/invocations-bidirectional-stream"
HANDSHAKE = (
    f"GET {PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(b'0123456789abcdef').decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("websocket")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[ClientConnection]:
    with opened(server) as connection:
        yield connection


def opened(server: Server, **headers: str) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{server.port}{PATH}", proxy=None, legacy=True, additional_headers=headers)


def send(client: ClientConnection, prompt: str, *, stream: bool = True) -> None:
    client.send(json.dumps({"prompt": prompt, "stream": stream}))


def frame(client: ClientConnection) -> Any:
    text = client.recv(timeout=10)
    return text if text == "[DONE]" else json.loads(text)


def texts(client: ClientConnection) -> list[str]:
    """The texts of one streamed answer."""
    found = []
    while (document := frame(client)) != "[DONE]":
        found.append(document["choices"][0]["text"])
    return found


def test_an_event_is_a_frame_and_one_connection_has_many_answers(client: ClientConnection) -> None:
    for _ in range(3):
        send(client, "a|b|c")
        assert texts(client) == ["a", "b", "c", ""]
    send(client, "a|b", stream=False)
    assert frame(client)["choices"][0]["text"] == "ab"


def test_each_message_is_a_request_in_the_metrics(server: Server) -> None:
    def metrics() -> dict[str, float]:
        metrics = httpx.get(f"http://127.0.0.1:{server.port}/metrics", trust_env=False).text
        lines = [line for line in metrics.splitlines() if f'route="{PATH}"' in line]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    before = metrics()
    with opened(server) as client:
        for _ in range(2):
            send(client, "a|b|c")
            texts(client)
        send(client, "<fail>")
        frame(client)

        def grown(name: str) -> float:
            return metrics().get(name, 0) - before.get(name, 0)

        eventually(lambda: grown(f'endpoint_requests_total{{route="{PATH}",status="500"}}') == 1)
        assert grown(f'endpoint_requests_total{{route="{PATH}",status="200"}}') == 2
        assert grown(f'endpoint_output_tokens_total{{route="{PATH}"}}') == 8
        assert grown(f'endpoint_first_token_seconds_count{{route="{PATH}"}}') == 2


def test_a_token_arrives_before_the_next_is_made(server: Server, client: ClientConnection) -> None:
    send(client, "a|<gate:frames>|b")
    assert frame(client)["choices"][0]["text"] == "a"
    server.open("frames")
    assert texts(client) == ["b", ""]


def test_messages_that_wait_are_answered_in_their_order(server: Server, client: ClientConnection) -> None:
    send(client, "<gate:waiting>|a", stream=False)
    for number in range(30):
        send(client, str(number), stream=False)
    server.open("waiting")
    assert [frame(client)["choices"][0]["text"] for _ in range(31)] == ["a", *map(str, range(30))]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\xff\xfe", "invalid_body"),
        ("{", "invalid_body"),
        ("[]", "invalid_body"),
        ('{"prompt": "a", "temperature": "hot"}', "invalid_value"),
        ('{"prompt": "<fail>"}', "generation_failed"),
        ('{"prompt": "<refuse>", "stream": true}', "invalid_value"),
    ],
)
def test_what_is_wrong_is_a_frame_and_the_connection_goes_on(
    client: ClientConnection, message: str | bytes, code: str
) -> None:
    client.send(message)
    assert frame(client)["error"]["code"] == code
    send(client, "a", stream=False)
    assert frame(client)["choices"][0]["text"] == "a"


@pytest.mark.parametrize(("adapter", "answered"), [("scripted", True), ("poems", False)])
def test_the_adapter_of_the_handshake_answers_every_message(server: Server, adapter: str, answered: bool) -> None:
    with opened(server, **{ADAPTER_HEADER: adapter}) as client:
        for body in ({"prompt": "a"}, {"prompt": "a", "model": "scripted"}):
            client.send(json.dumps(body))
            document = frame(client)
            assert document["model"] == "scripted" if answered else document["error"]["code"] == "model_not_found"


def test_a_failure_midway_has_no_end_mark(client: ClientConnection) -> None:
    send(client, "a|<fail>")
    assert frame(client)["choices"][0]["text"] == "a"
    assert frame(client)["error"]["code"] == "generation_failed"
    send(client, "b")
    assert texts(client) == ["b", ""]


def test_a_message_in_pieces_is_one_message(client: ClientConnection) -> None:
    client.send(iter(['{"prom', 'pt": "a|', 'b"}']))
    assert frame(client)["choices"][0]["text"] == "ab"


def test_a_message_too_large_closes_with_its_code(client: ClientConnection) -> None:
    client.send(json.dumps({"prompt": "a" * MAX_BODY}))
    with pytest.raises(ConnectionClosed) as caught:
        client.recv(timeout=10)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009


def test_a_client_that_closes_frees_the_slot(server: Server) -> None:
    client = opened(server)
    send(client, "a|<hold>")
    frame(client)
    client.close()
    eventually(lambda: server.seen()["cancelled"] == 1)


def test_a_client_that_is_gone_frees_the_slot(server: Server) -> None:
    client = opened(server)
    send(client, "<hold>")
    eventually(lambda: server.seen()["in_engine"] == 1)
    client.socket.close()
    eventually(lambda: server.seen()["cancelled"] == 1)


def test_a_client_that_reads_nothing_is_cut_off(server: Server) -> None:
    with server.connect() as connection:
        connection.send(HANDSHAKE)
        assert connection.head().status == 101
        content = json.dumps({"prompt": "<big:9000000>|<hold>", "stream": True}).encode()
        connection.send(bytes([0x81, 0x80 | len(content), 0, 0, 0, 0]) + content)
        eventually(lambda: server.seen()["cancelled"] == 1)
        eventually(lambda: server.seen()["in_flight"] == 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x05hello",  # not masked
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x83\x80\x00\x00\x00\x00",  # an opcode that is none
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x80\x00\x00\x00\x00",  # goes on with nothing
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x81\x82\x00\x00\x00\x00\xff\xfe",  # text that is not UTF-8
    ],
)
def test_bytes_that_are_no_frame_close_the_connection(server: Server, data: bytes) -> None:
    with server.connect() as connection:
        connection.send(HANDSHAKE)
        assert connection.head().status == 101
        connection.send(data)
        rest = connection.rest()
    assert rest[:1] == b"\x88", "a close frame"


def test_a_request_that_is_no_handshake_is_told_so(server: Server) -> None:
    with server.connect() as connection:
        head, body = connection.exchange(request(PATH))
        assert head.status == 426
        assert json.loads(body)["error"]["code"] == "upgrade_required"
    with server.connect() as connection:
        connection.send(HANDSHAKE.replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 7"))
        assert connection.head().status in (400, 426)


@pytest.mark.parametrize("header", ["Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Host"])
def test_a_handshake_that_is_none_is_the_clients_fault_in_the_metrics_too(server: Server, header: str) -> None:
    def refused() -> float:
        metrics = httpx.get(f"http://127.0.0.1:{server.port}/metrics", trust_env=False).text
        found = [line for line in metrics.splitlines() if f'requests_total{{route="{PATH}",status="400"}}' in line]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    before = refused()
    with server.connect() as connection:
        own = HANDSHAKE.replace(b"Host: x", b"Host: \xe9") if header == "Host" else HANDSHAKE
        extra = b"" if header == "Host" else header.encode() + b": \xe9\r\n"
        connection.send(own.removesuffix(b"\r\n") + extra + b"\r\n")
        assert connection.head().status == 400
    eventually(lambda: refused() == before + 1)


def test_idle_connections_hold_neither_a_place_nor_a_thread(server: Server) -> None:
    with ExitStack() as held:
        clients = [held.enter_context(opened(server)) for _ in range(THREADS + PLACES)]
        assert server.seen()["in_flight"] == 0
        with server.connect() as connection:
            assert connection.exchange(request("/v1/completions", {"prompt": "a"}))[0].status == 200
        send(clients[-1], "a", stream=False)
        assert frame(clients[-1])["choices"][0]["text"] == "a"


def test_messages_that_are_being_answered_count_as_requests(server: Server) -> None:
    with ExitStack() as held:
        clients = [held.enter_context(opened(server)) for _ in range(PLACES + 1)]
        for client in clients[:PLACES]:
            send(client, "<gate:places>|a", stream=False)
        eventually(lambda: server.seen()["in_flight"] == PLACES)
        send(clients[-1], "b", stream=False)
        assert frame(clients[-1])["error"]["code"] == "too_many_requests"
        server.open("places")
        for client in clients[:PLACES]:
            assert frame(client)["choices"][0]["text"] == "a"
        eventually(lambda: server.seen()["in_flight"] == 0)
        send(clients[-1], "b", stream=False)
        assert frame(clients[-1])["choices"][0]["text"] == "b"


def test_a_shutdown_closes_connections_on_which_nothing_runs(process: Server) -> None:
    """Last: it ends the server."""
    with opened(process) as client:
        send(client, "a", stream=False)
        assert frame(client)["choices"][0]["text"] == "a"
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(timeout=10)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
    assert process.process.wait(10) == 0
