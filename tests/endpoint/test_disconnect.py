"""A client that goes away frees its slot: counted in the engine, not guessed from the front."""

from __future__ import annotations

import json
import os
import random
import signal
import socket

import pytest

from tests.endpoint.serve_process import ServeProcess

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


def connect_and_count(endpoint: ServeProcess, body: dict[str, object], sequences: int) -> socket.socket:
    """Asks until all sequences were seen in the engine. On a busy machine a reply may be whole before the count."""
    ended = endpoint.log.count('"request_end"')
    connection = connect(endpoint, body)

    def counted() -> bool:
        nonlocal connection, ended
        if running(endpoint) == sequences:
            return True
        now = endpoint.log.count('"request_end"')
        if now != ended:
            connection.close()
            ended, connection = now, connect(endpoint, body)
        return False

    endpoint.until(counted, 300)  # the first grammar is tried in a process that starts
    return connection


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])
def test_each_client_that_leaves_frees_one_slot(endpoint: ServeProcess, stream: bool) -> None:
    (core,) = endpoint.engine_pids()
    os.kill(core, signal.SIGSTOP)  # none ends before all have come
    try:
        stays = connect(endpoint, {**LONG, "stream": True})
        leave = [connect(endpoint, {**LONG, "stream": stream}) for _ in range(3)]
        endpoint.until(lambda: running(endpoint) == 4, 20)
        for connection in leave if not stream else []:
            connection.close()
    finally:
        os.kill(core, signal.SIGCONT)
    for connection in leave if stream else []:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.close()
    endpoint.until(lambda: running(endpoint) == 1, 3)
    # The engine's own count, from its core, which reports it with the next step of the stream that stays.
    endpoint.until(lambda: endpoint.metric("vllm:num_requests_running") == 1, 5)
    stays.close()
    endpoint.until(lambda: running(endpoint) == 0, 3)
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0, 3)


# What vLLM's own serving classes answer, and the sequences that each asks for.
FULL: list[tuple[dict[str, object], int]] = [
    ({"logprobs": 0}, 1),
    ({"n": 4, "temperature": 1}, 4),
    ({"prompt": [LONG["prompt"]] * 3}, 3),
    ({"structured_outputs": {"regex": "(a|b){400,}"}, "ignore_eos": False}, 1),
]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])
@pytest.mark.parametrize(("fields", "sequences"), FULL)
def test_on_the_full_path_all_of_its_slots(
    endpoint: ServeProcess, fields: dict[str, object], sequences: int, stream: bool
) -> None:
    leaves = connect_and_count(endpoint, {**LONG, **fields, "stream": stream}, sequences)
    if stream:
        assert leaves.recv(15) == b"HTTP/1.1 200 OK"
    leaves.close()
    endpoint.until(lambda: running(endpoint) == 0, 5)
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0, 3)


def test_clients_that_leave_at_any_moment_leave_nothing_behind(endpoint: ServeProcess) -> None:
    bodies = [{**LONG, **fields, "stream": stream} for fields, _ in FULL for stream in (True, False)]
    pick = random.Random(6)
    for _ in range(5):
        connections = [connect(endpoint, body) for body in bodies]
        pick.shuffle(connections)
        for connection in connections:
            connection.settimeout(pick.choice([0.001, 0.01, 0.05]))
            try:
                connection.recv(pick.randint(1, 4000))
            except TimeoutError:
                pass
            connection.close()
    endpoint.until(lambda: running(endpoint) == 0, 10)
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0, 3)
    assert endpoint.ping() == (200, "")


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
