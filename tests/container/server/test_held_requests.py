"""What becomes of a request that waits for the next engine."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from container.recovery.recovery import Recovery
from container.recovery.request_channel import HandedRequest, RequestChannel, RequestNote
from container.requests.http_limits import Deadline
from container.server.held_requests import HeldRequests
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.errors import DeadlineExceeded, Draining, EndpointError, EngineFailed, TooManyRequests


class Waiting:
    """One request that waits in a process that starts."""

    def __init__(self, seconds: float = 600.0, places: int = 1) -> None:
        self.channel = RequestChannel()
        self.service = Service.of(EndpointConfig(model="scripted"))
        self.service.admission.limit = places
        self.service.recovery = Recovery(self.channel)
        self.run: list[HandedRequest] = []
        self.refused: list[EndpointError] = []
        self.held = HeldRequests(self.service, self.run.append, lambda handed, error: self.refused.append(error))
        self.deadline = Deadline(seconds, time.monotonic() + seconds, stream=False)
        self.client = self.hand_over()
        self.held.check()

    def hand_over(self) -> socket.socket:
        server, client = socket.socketpair()
        with server:
            self.channel.send(HandedRequest(server, b"POST", RequestNote("an-id", 0.0, self.deadline)))
        return client

    def ended(self) -> bool:
        self.held.check()
        return self.service.admission.count == 0


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    waiting = Waiting()
    assert waiting.service.admission.count == 1
    with waiting.client:
        yield waiting


def test_it_waits_while_the_engine_starts_and_is_run_once_the_engine_is_ready(waiting: Waiting) -> None:
    assert not waiting.ended()
    assert waiting.held.timeout(1.0) < 1.0
    waiting.service.lifecycle.ready()
    waiting.held.check()
    assert [handed.request for handed in waiting.run] == [b"POST"]
    assert waiting.service.admission.count == 1, "it keeps its admission"
    waiting.held.check()
    assert len(waiting.run) == 1
    assert waiting.held.timeout(1.0) == 1.0


def test_a_drain_ends_it(waiting: Waiting) -> None:
    waiting.service.lifecycle.drain()
    assert waiting.ended()
    assert [type(error) for error in waiting.refused] == [Draining]


def test_an_engine_that_cannot_come_back_ends_it(waiting: Waiting) -> None:
    waiting.service.lifecycle.fail("no device")
    assert waiting.ended()
    assert [type(error) for error in waiting.refused] == [EngineFailed]


def test_a_client_that_has_left_is_not_run_again(waiting: Waiting) -> None:
    waiting.client.close()
    assert waiting.ended()
    waiting.service.lifecycle.ready()
    waiting.held.check()
    assert (waiting.run, waiting.refused) == ([], [])


def test_its_deadline_holds_while_it_waits() -> None:
    waiting = Waiting(seconds=0.0)
    with waiting.client:
        assert waiting.ended()
    assert [type(error) for error in waiting.refused] == [DeadlineExceeded]


def test_more_than_are_admitted_are_refused(waiting: Waiting) -> None:
    with waiting.hand_over():
        waiting.held.check()
        assert [type(error) for error in waiting.refused] == [TooManyRequests]
        assert waiting.service.admission.count == 1


def test_a_process_that_serves_leaves_the_channel_to_its_successor(waiting: Waiting) -> None:
    waiting.service.lifecycle.ready()
    waiting.held.check()
    with waiting.hand_over():
        waiting.held.check()
        assert waiting.channel.receive() is not None
