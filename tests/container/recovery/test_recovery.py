"""What clients see when the engine dies under their requests: a real gunicorn, a scripted engine.

One endpoint for the module; the tests run in the file's order, because each leaves it as the next one needs it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.container.raw_http import Connection, request
from tests.container.scripted_process import start_scripted
from tests.handler.waiting import WITHIN, eventually

SECOND = "<gate:second>|text"
POISON = {"prompt": "<hold>|poison"}


class RecoveringEndpoint:
    def __init__(self, directory: Path, restarts: int) -> None:
        self.directory, self.log = directory, directory / "log"
        self.process, self.port = start_scripted("scripted_recovery.py", self.log, str(directory), str(restarts))
        eventually(lambda: self.ping() == 200)

    def ask(self, data: bytes) -> tuple[int, dict[str, Any]]:
        """Status and document. (0, {}) from a process that ended with the connection."""
        with Connection(self.port) as connection:
            try:
                head, body = connection.exchange(data)
            except (OSError, ValueError):
                return 0, {}
            return head.status, json.loads(body or b"{}")

    def ping(self) -> int:
        return self.ask(request("/ping"))[0]

    def serves(self, life: int) -> bool:
        """Whether this life has begun, and is ready. /ping alone is one of the last life's for a moment."""
        return self.lives() == life and self.ping() == 200

    def lives(self) -> int:
        return (self.directory / "lives").stat().st_size

    def begin(self, *requests: bytes, begun: int | None = None) -> list[Connection]:
        """Sends requests that stay in flight.

        :param begun: how many there are then.
        """
        connections = [Connection(self.port) for _ in requests]
        for connection, data in zip(connections, requests, strict=True):
            connection.send(data)
        eventually(lambda: self.seen("in_flight") == (begun or len(requests)))
        return connections

    def seen(self, name: str) -> int:
        return int(self.ask(request("/scripted"))[1].get(name, -1))

    def die(self) -> None:
        self.ask(request("/scripted/die", {}))

    def go(self, life: int) -> None:
        (self.directory / f"go-{life}").touch()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecoveringEndpoint]:
    endpoint = RecoveringEndpoint(tmp_path_factory.mktemp("recovery"), 1000)
    yield endpoint
    endpoint.process.kill()
    endpoint.process.communicate()


def whole(connection: Connection) -> tuple[int, bytes]:
    head = connection.head()
    return head.status, connection.content(head)


def test_what_had_sent_nothing_is_answered_by_the_next_engine_and_the_rest_ends_in_its_error(
    endpoint: RecoveringEndpoint,
) -> None:
    life = endpoint.lives()
    lines = b'{"prompt": "one"}\n{"prompt": "<gate:second>|two"}'
    kind = f"Content-Type: application/jsonlines\r\nContent-Length: {len(lines)}"
    session = endpoint.ask(request("/invocations", {"requestType": "NEW_SESSION"}))[1]["session_id"]
    connections = endpoint.begin(
        request("/invocations", {"prompt": f"a|{SECOND}", "stream": True}),
        request("/invocations", {"prompt": SECOND, "stream": True}),
        request("/invocations", {"prompt": SECOND}),
        request("/invocations", {"prompt": SECOND, "user": "x" * 9000}),  # parsed in a thread
        request("/invocations", {"prompt": SECOND, "stream": True, "user": "x" * 9000}),
        f"POST /invocations HTTP/1.1\r\nHost: x\r\n{kind}\r\n\r\n".encode() + lines,
        request("/invocations", {"prompt": SECOND}, headers=f"X-Amzn-SageMaker-Session-Id: {session}\r\n"),
        request("/invocations", {"prompt": SECOND, "user": "leaves"}),
    )
    begun, stream, fast, thread, long_stream, batch, in_session, leaving = connections
    assert begun.head().status == 200
    endpoint.die()
    body, ended = begun.chunks()
    assert not ended
    assert b"engine_failed" in body
    status, body = whole(in_session)
    assert (status, json.loads(body)["error"]["code"]) == (503, "engine_failed")  # the session is gone as well
    eventually(lambda: endpoint.seen("in_flight") == 6 and endpoint.ping() == 503)  # the next process holds them
    leaving.close()
    eventually(lambda: endpoint.seen("in_flight") == 5)
    endpoint.go(life + 1)
    for connection in (fast, thread):
        status, body = whole(connection)
        assert (status, json.loads(body)["choices"][0]["text"]) == (200, "text")
    for connection in (stream, long_stream):
        assert connection.head().status == 200
        body, ended = connection.chunks()
        assert ended
        assert body.endswith(b"data: [DONE]\n\n")
        assert b'"text":"text"' in body
    status, body = whole(batch)
    assert (status, [json.loads(line)["choices"][0]["text"] for line in body.splitlines()]) == (200, ["one", "two"])
    eventually(lambda: endpoint.seen("in_flight") == 0)
    assert "8 requests were in the engine, and 6 of them run again" in endpoint.log.read_text()
    assert "gate:second" not in endpoint.log.read_text()


def test_a_body_is_tried_alone_and_refused_if_the_engine_dies_of_it_again_while_bystanders_are_answered(
    endpoint: RecoveringEndpoint,
) -> None:
    life = endpoint.lives()
    bystanders = [request("/invocations", {"prompt": SECOND, "user": f"bystander {place}"}) for place in range(2)]
    endpoint.ask(request("/scripted/close", {}))
    victim, *waiting = endpoint.begin(request("/invocations", POISON), *bystanders)
    eventually(lambda: endpoint.seen("in_engine") == 3)
    endpoint.die()
    endpoint.go(life + 1)
    # The bystanders have been tried or wait to be. Nothing else is in the engine while the poison is.
    eventually(lambda: endpoint.serves(life + 1) and endpoint.seen("on_trial") == 1 and endpoint.seen("in_engine") == 1)
    (late,) = endpoint.begin(
        request("/invocations", {"prompt": "honest", "user": "late"}), begun=endpoint.seen("in_flight") + 1
    )
    assert endpoint.seen("in_engine") == 1
    endpoint.die()
    status, body = whole(victim)
    assert (status, json.loads(body)["error"]["code"]) == (400, "body_quarantined")
    endpoint.go(life + 2)
    for connection in (*waiting, late):
        status, body = whole(connection)
        assert (status, json.loads(body)["choices"][0]["text"]) in ((200, "text"), (200, "honest"))
    eventually(lambda: endpoint.serves(life + 2))
    status, reply = endpoint.ask(request("/invocations", POISON))
    assert (status, reply["error"]["code"]) == (400, "body_quarantined")
    assert "the engine has died of it alone" in endpoint.log.read_text()


def test_deaths_of_bodies_are_not_counted_against_the_container(tmp_path: Path) -> None:
    endpoint = RecoveringEndpoint(tmp_path, 1)
    for life in (2, 4, 6):
        (victim,) = endpoint.begin(request("/invocations", {**POISON, "user": f"{life}"}))
        eventually(lambda: endpoint.seen("in_engine") == 1)
        endpoint.die()
        endpoint.go(life)
        eventually(lambda: endpoint.seen("on_trial") == 1)
        endpoint.die()
        assert whole(victim)[0] == 400
        endpoint.go(life + 1)
        eventually(partial(endpoint.serves, life + 1))
    assert endpoint.ask(request("/invocations", {"prompt": "honest"}))[0] == 200
    endpoint.process.kill()
    endpoint.process.communicate()


def test_an_engine_that_dies_idle_is_replaced(endpoint: RecoveringEndpoint) -> None:
    endpoint.die()
    endpoint.go(5)
    eventually(lambda: endpoint.serves(5))
    assert endpoint.ask(request("/invocations", {"prompt": "honest"}))[0] == 200
    assert "ERROR:gunicorn.error:Worker" in endpoint.log.read_text(), "gunicorn's lines are not in the log's format"


def test_what_waits_is_answered_although_an_engine_in_between_cannot_start(tmp_path: Path) -> None:
    endpoint = RecoveringEndpoint(tmp_path, 2)
    (waiting,) = endpoint.begin(request("/invocations", {"prompt": SECOND}))
    (tmp_path / "fail-2").touch()
    endpoint.go(3)
    endpoint.die()
    status, body = whole(waiting)
    assert (status, json.loads(body)["choices"][0]["text"]) == (200, "text")
    assert endpoint.lives() == 3
    endpoint.process.kill()
    endpoint.process.communicate()


def test_the_last_engine_that_cannot_start_ends_what_waits(tmp_path: Path) -> None:
    endpoint = RecoveringEndpoint(tmp_path, 1)
    (waiting,) = endpoint.begin(request("/invocations", {"prompt": SECOND}))
    (tmp_path / "fail-2").touch()
    endpoint.die()
    status, body = whole(waiting)
    assert (status, json.loads(body)["error"]["code"]) == (503, "engine_failed")
    assert endpoint.process.wait(WITHIN) == 1


def test_a_drain_ends_what_waits_for_the_next_engine(endpoint: RecoveringEndpoint) -> None:
    (waiting,) = endpoint.begin(request("/invocations", {"prompt": "<hold>"}))
    endpoint.die()
    eventually(lambda: endpoint.ping() == 503 and endpoint.seen("in_flight") == 1)
    endpoint.process.send_signal(signal.SIGTERM)
    status, body = whole(waiting)
    assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
    assert endpoint.process.wait(WITHIN) == 0


def test_without_another_engine_a_request_ends_in_its_error(tmp_path: Path) -> None:
    endpoint = RecoveringEndpoint(tmp_path, 0)
    (waiting,) = endpoint.begin(request("/invocations", {"prompt": "<hold>"}))
    endpoint.die()
    status, body = whole(waiting)
    assert (status, json.loads(body)["error"]["code"]) == (503, "engine_failed")
    assert endpoint.process.wait(WITHIN) == 1


def test_a_closed_terminal_ends_the_server_and_starts_no_second_engine(tmp_path: Path) -> None:
    endpoint = RecoveringEndpoint(tmp_path, 1)
    endpoint.process.send_signal(signal.SIGHUP)
    assert endpoint.process.wait(WITHIN) == 0
    assert endpoint.lives() == 1
