"""What becomes of a request that waits for the next engine."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterator
from typing import Never

import pytest

from container.recovery.recovery import Recovery
from container.recovery.request_channel import HandedRequest, RequestChannel, RequestNote
from container.requests.deadline import Deadline
from container.server.held_requests import HeldRequests
from container.service import Service
from handler.config.endpoint_config import EndpointConfig

REQUEST = b"POST /v1/messages?beta=true HTTP/1.1\r\n\r\n"


class Waiting:
    """One request that waits in a process that starts."""

    def __init__(self, seconds: float = 600.0, places: int = 1) -> None:
        self.channel = RequestChannel()
        self.service = Service.of(EndpointConfig(model="scripted"))
        self.service.admission.limit = places
        self.service.recovery = Recovery(self.channel)
        self.run: list[HandedRequest] = []
        self.held = HeldRequests(self.service, self)  # type: ignore[arg-type]  # a stand-in
        self.deadline = Deadline(seconds, time.monotonic() + seconds, stream=False)
        self.client = self.hand_over()
        self.held.receive()
        self.held.look()

    def take(self, client: socket.socket, handed: HandedRequest) -> None:
        """As `Connections.take`."""
        assert client is handed.connection
        self.run.append(handed)

    def refusal(self) -> str:
        """The code of the error that the client got."""
        _, body = self.client.recv(4096).split(b"\r\n\r\n")
        document = json.loads(body)
        assert document["type"] == "error", "as the Messages API has it"
        return str(document["error"]["code"])

    def hand_over(self) -> socket.socket:
        server, client = socket.socketpair()
        with server:
            self.channel.send(server.fileno(), REQUEST, RequestNote("an-id", 0.0, self.deadline))
        return client

    def ended(self) -> bool:
        self.held.look()
        return self.service.admission.count == 0


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    waiting = Waiting()
    assert waiting.service.admission.count == 1
    with waiting.client:
        yield waiting


def test_it_waits_while_the_engine_starts_and_is_run_once_the_engine_is_ready(waiting: Waiting) -> None:
    assert not waiting.ended()
    waiting.service.lifecycle.ready()
    waiting.held.look()
    assert [handed.request for handed in waiting.run] == [REQUEST]
    assert waiting.service.admission.count == 0, "who answers it counts it again, or it is refused before"
    waiting.held.look()
    assert len(waiting.run) == 1


def test_a_drain_ends_it(waiting: Waiting) -> None:
    waiting.service.lifecycle.drain()
    assert waiting.ended()
    assert waiting.refusal() == "draining"


def test_an_engine_that_cannot_come_back_ends_it(waiting: Waiting) -> None:
    waiting.service.lifecycle.fail("no device")
    assert waiting.ended()
    assert waiting.refusal() == "engine_failed"


def test_if_another_engine_follows_it_waits_for_that_one(waiting: Waiting) -> None:
    waiting.service.recovery.successor = lambda: True
    waiting.service.lifecycle.fail("the Neuron cores are still in use")
    assert waiting.ended()
    handed = waiting.channel.receive()
    assert handed is not None
    with handed.connection:
        assert (handed.request, handed.note) == (REQUEST, RequestNote("an-id", 0.0, waiting.deadline))
        handed.connection.sendall(b"the reply")
        assert waiting.client.recv(100) == b"the reply"


def test_a_channel_without_room_ends_it(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Never:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    waiting.service.recovery.successor = lambda: True
    monkeypatch.setattr(waiting.channel, "send", full)
    waiting.service.lifecycle.fail("no device")
    assert waiting.ended()
    assert waiting.refusal() == "engine_failed"


def test_a_client_that_has_left_is_not_run_again(waiting: Waiting) -> None:
    waiting.client.close()
    assert waiting.ended()
    waiting.service.lifecycle.ready()
    waiting.held.look()
    assert not waiting.run


def test_its_deadline_holds_while_it_waits() -> None:
    waiting = Waiting(seconds=0.0)
    with waiting.client:
        assert waiting.refusal() == "deadline_exceeded"


def test_more_than_are_admitted_are_refused(waiting: Waiting) -> None:
    with waiting.hand_over() as refused:
        waiting.held.receive()
        assert refused.recv(4096).startswith(b"HTTP/1.1 429 ")
        assert waiting.service.admission.count == 1


def test_a_process_that_serves_leaves_the_channel_to_its_successor(waiting: Waiting) -> None:
    waiting.service.lifecycle.ready()
    waiting.held.look()
    with waiting.hand_over():
        waiting.held.look()
        assert waiting.channel.receive() is not None
