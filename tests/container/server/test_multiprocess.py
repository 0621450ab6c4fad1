"""Several serving processes under one gunicorn: who answers, who is replaced, who goes last. The engine is scripted.

One endpoint for the module; the tests run in the file's order, because each leaves it as the next one needs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from raw_http import Connection, request
from scripted_front_ends import PLACES

# tests/endpoint/test_front_ends.py looks at the directories that front ends make in /dev/shm.
SLOT = "x-endpoint-front-end"
HOLD = request("/invocations", {"prompt": "a|<hold>", "stream": True})
WITHIN = 120.0
BURSTS = 20


class Endpoint:
    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        script = Path(__file__).parents[1] / "scripted_front_ends.py"
        importable = [str(script.parents[2]), str(script.parents[1] / "handler")]
        # As `container.serve` does before prometheus_client is imported.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(importable), "PROMETHEUS_MULTIPROC_DIR": ""}
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def ping(self) -> int:
        with Connection(self.port) as connection:
            return connection.exchange(request("/ping"))[0].status

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WITHIN
        while not condition():
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def ready(self) -> bool:
        """Two front ends answer, not the leader."""
        with Connection(self.port) as one, Connection(self.port) as other:
            heads = [connection.exchange(request("/v1/models"))[0] for connection in (one, other)]
        return {head.status for head in heads} == {200} and len({head.headers[SLOT] for head in heads} - {"0"}) == 2

    def pid(self, role: str) -> int:
        children = psutil.Process(self.process.pid).children()
        (found,) = [child.pid for child in children if f"{role} [" in " ".join(child.cmdline())]
        return found

    def metric(self, name: str) -> float:
        with Connection(self.port) as connection:
            _, body = connection.exchange(request("/metrics"))
        found = [line for line in body.decode().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    found = Endpoint(tmp_path_factory.mktemp("front-ends") / "log")
    try:
        found.until(found.ready)
        yield found
    finally:
        if found.process.poll() is None:
            found.process.terminate()
        found.process.communicate(timeout=WITHIN)


def held(endpoint: Endpoint, stack: ExitStack, count: int) -> list[tuple[str, Connection]]:
    """So many streams at once that make one token and then wait, each with the slot that answers it."""
    connections = [stack.enter_context(Connection(endpoint.port)) for _ in range(count)]
    for connection in connections:
        connection.send(HOLD)
    return [(connection.head().headers[SLOT], connection) for connection in connections]


def shared_out(
    endpoint: Endpoint, count: int, enough: Callable[[Counter[str]], bool]
) -> tuple[ExitStack, list[tuple[str, Connection]]]:
    """Sends bursts until one is shared out. On a busy machine a front end may get no processor time meanwhile."""
    seen = []
    for _ in range(BURSTS):
        stack = ExitStack()
        streams = held(endpoint, stack, count)
        seen.append(Counter(slot for slot, _ in streams))
        if enough(seen[-1]):
            return stack, streams
        stack.close()
        endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0)
    raise AssertionError(seen)


def test_a_burst_is_shared_out_and_the_limit_is_one_for_all(endpoint: Endpoint) -> None:
    # The leader may have taken some at first.
    stack, _ = shared_out(endpoint, PLACES, lambda shared: min(shared["1"], shared["2"]) >= PLACES // 8)
    with stack:
        assert endpoint.metric("endpoint_requests_in_flight") == PLACES
        for _ in range(6):
            with Connection(endpoint.port) as connection:
                assert connection.exchange(request("/invocations", {"prompt": "a"}))[0].status == 429
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0)
    with Connection(endpoint.port) as connection:
        assert connection.exchange(request("/invocations", {"prompt": "a"}))[0].status == 200


def test_a_session_is_known_to_all(endpoint: Endpoint) -> None:
    with Connection(endpoint.port) as connection:
        _, body = connection.exchange(request("/invocations", {"requestType": "NEW_SESSION"}))
    header = f"X-Amzn-SageMaker-Session-Id: {json.loads(body)['session_id']}\r\n"
    invocation = request("/invocations", {"prompt": "a"}, headers=header)
    slots: set[str] = set()
    with ExitStack() as stack:
        for _ in range(BURSTS):
            connections = [stack.enter_context(Connection(endpoint.port)) for _ in range(12)]
            heads = [connection.exchange(invocation)[0] for connection in connections]
            assert {head.status for head in heads} == {200}
            slots |= {head.headers[SLOT] for head in heads}
            if {"1", "2"} <= slots:
                break
    assert {"1", "2"} <= slots


def test_a_front_end_that_ends_is_replaced_and_its_places_are_free(endpoint: Endpoint) -> None:
    stack, streams = shared_out(endpoint, 10, lambda shared: 0 < shared["1"] < 10)
    with stack:
        mine = sum(slot == "1" for slot, _ in streams)
        os.kill(endpoint.pid("front end 1"), signal.SIGKILL)
        endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 10 - mine)
        endpoint.until(lambda: endpoint.metric("endpoint_front_ends") == 2)
        assert endpoint.metric("endpoint_front_ends_ended_total") == 1
        assert "released 1" in endpoint.log.read_text()
        endpoint.until(endpoint.ready)
        assert "3" in {slot for slot, _ in held(endpoint, stack, 4)}
        endpoint.pid("front end 2")
        assert endpoint.metric("endpoint_requests_in_flight") == 14 - mine


def test_without_its_leader_no_front_end_says_200(endpoint: Endpoint) -> None:
    endpoint.until(lambda: endpoint.metric("endpoint_requests_in_flight") == 0)
    before = {endpoint.pid(f"front end {slot}") for slot in (2, 3)}
    with ExitStack() as stack:
        streams = held(endpoint, stack, 6)
        os.kill(endpoint.pid("leader"), signal.SIGKILL)
        for _, connection in streams:
            assert b'"code":"engine_failed"' in connection.rest()
    endpoint.until(lambda: not any(psutil.pid_exists(pid) for pid in before))
    endpoint.until(endpoint.ready)
    endpoint.until(lambda: endpoint.ping() == 200)


def test_sigterm_waits_for_all_and_leaves_nothing(endpoint: Endpoint) -> None:
    gated = request("/invocations", {"prompt": "a|<big:3>", "stream": True})
    with ExitStack() as stack:
        streams = held(endpoint, stack, 6)
        leader = psutil.Process(endpoint.pid("leader"))
        members = [psutil.Process(endpoint.pid(f"front end {slot}")) for slot in (1, 2)]
        endpoint.process.send_signal(signal.SIGTERM)
        endpoint.until(lambda: endpoint.ping() == 503)
        with Connection(endpoint.port) as connection:
            assert connection.exchange(gated)[0].status == 503
        assert all(process.is_running() for process in (leader, *members))
        for _, connection in streams:
            connection.socket.close()
    assert endpoint.process.wait(WITHIN) == 0
    assert not any(process.is_running() for process in (leader, *members))


def test_front_ends_that_cannot_join_end_the_start(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path / "log", "--broken")
    assert endpoint.process.wait(60) == 3
    assert "no way to the engine" in endpoint.log.read_text()
