"""A client that goes away frees its slot: counted in the engine, not guessed from the front."""

from __future__ import annotations

import json
import socket

import pytest
from serve_process import ServeProcess

pytestmark = pytest.mark.engine

LONG = {"prompt": "Question: Tell me a story.\nAnswer:", "max_tokens": 900, "ignore_eos": True, "temperature": 0}


def connect(endpoint: ServeProcess, body: dict[str, object]) -> socket.socket:
    payload = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", endpoint.port), timeout=30)
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + payload)
    return connection


def running(endpoint: ServeProcess) -> int:
    return int(endpoint.metric("endpoint_requests_in_engine"))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])
def test_each_client_that_leaves_frees_one_slot(endpoint: ServeProcess, stream: bool) -> None:
    stays = connect(endpoint, {**LONG, "stream": True})
    leave = [connect(endpoint, {**LONG, "stream": stream}) for _ in range(3)]
    endpoint.until(lambda: running(endpoint) == 4, 20)
    if stream:
        for connection in leave:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
    for connection in leave:
        connection.close()
    endpoint.until(lambda: running(endpoint) == 1, 3)
    # The engine's own count, from its core, which reports it with the next step of the stream that stays.
    endpoint.until(lambda: endpoint.metric("vllm:num_requests_running") == 1, 5)
    stays.close()
    endpoint.until(lambda: running(endpoint) == 0, 3)
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0, 3)


def test_half_open_connections_do_no_harm(endpoint: ServeProcess) -> None:
    idle = [socket.create_connection(("127.0.0.1", endpoint.port), timeout=10) for _ in range(200)]
    for connection in idle[:100]:
        connection.sendall(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Le")
    try:
        assert endpoint.ping() == (200, "")
        reply = endpoint.client.post("/invocations", json={"prompt": "a", "max_tokens": 2}, timeout=5)
        assert reply.status_code == 200
    finally:
        for connection in idle:
            connection.close()
