"""What the tests of `container` share. The helpers of tests/handler are importable here too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from werkzeug.test import Client

from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.engine.event_loop import LoopThread
from tests.container.http_client import http_client
from tests.container.scripted_engine import MAX_BODY, PLACES, ScriptedEngine, ready_service
from tests.container.scripted_process import Server
from tests.handler.loops import end_loop
from tests.handler.waiting import eventually


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread.start("test-loop")
    yield loop
    end_loop(loop)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine()
    yield engine
    end_loop(engine.loop)


@pytest.fixture
def service(engine: ScriptedEngine) -> Service:
    """A service that is ready, with few places and small bodies."""
    config = EndpointConfig(model="scripted", max_concurrent=PLACES, max_body=MAX_BODY)
    return ready_service(config, engine)


@pytest.fixture
def server(process: Server) -> Iterator[Server]:
    """The server of a module's `process`, for one test."""
    with process.clean("cancelled") as server:
        yield server


@pytest.fixture
def client(service: Service) -> Client:
    """A client of the service, over real HTTP."""
    return http_client(service)


@pytest.fixture
def nothing_is_left(service: Service, engine: ScriptedEngine) -> Iterator[None]:
    """Whatever a test did: no place is kept, and no slot."""
    yield
    eventually(lambda: service.admission.count == 0)
    eventually(lambda: engine.unfinished() == 0)
