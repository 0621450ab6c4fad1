"""The page after a start that failed: the master serves it, until the container is stopped.

The serving process and the engine have ended by then, and hold neither memory nor devices. The acceptor goes on: it
answers /ping with the reason. The master takes the other connections that it passes on. Requests to the engine get 503.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import msgspec

from container.application import RequestRouter, create_app
from container.http.connections import LAST_SECONDS, Connections
from container.routes.ping import ping_reply
from container.server.acceptor_process import AcceptorProcess
from container.server.connection_intake import ConnectionIntake
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.startup.lifecycle import Lifecycle, TimedStep

logger = logging.getLogger(__name__)
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def serve_page(config: EndpointConfig, acceptor: AcceptorProcess, reason: str) -> None:
    """Serves the page until one of the signals `ENDING` arrives. Call in the master, at its end.

    :param reason: what the page says if the serving process has left no reason.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # before the threads begin, which inherit it
    service = Service.of(config, failed_lifecycle(acceptor.state.read()[1], reason))
    acceptor.state.write(*ping_reply(service))
    router = RequestRouter(service, create_app(service))
    connections = Connections(service.loop, router.answer, service.observer, service.bodies)
    intake = ConnectionIntake(acceptor.channel, connections, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    service.loop.call(intake.begin)
    port = acceptor.listener.getsockname()[1]
    logger.error("the page at port %d shows why the endpoint failed, until SIGTERM or Ctrl-C", port)
    signal.sigwait(ENDING)
    # Python's threads take no more work once the interpreter ends, so nothing may be answered by then.
    service.loop.call(connections.stop)
    connections.wait_closed(LAST_SECONDS)
    service.loop.stop()


def failed_lifecycle(ping_body: bytes, reason: str) -> Lifecycle:
    """The lifecycle of the serving process that has ended, from its last reply to /ping."""
    last = last_words(ping_body)
    lifecycle, seconds = Lifecycle(), last.get("seconds", 0.0)
    lifecycle.began = began = time.monotonic() - seconds
    for row in last.get("timeline", ()):
        ended = seconds if row["end"] is None else row["end"]
        step = TimedStep(row["step"], tuple(row["waited_for"]), began + row["begin"], began + ended)
        lifecycle.steps[step.name] = step
    lifecycle.stage(last.get("stage", ""))
    lifecycle.stages, lifecycle.served = (), "timeline" not in last  # a start that succeeded is not told again
    lifecycle.fail(last.get("reason") or reason)
    return lifecycle


def last_words(ping_body: bytes) -> dict[str, Any]:
    """What a serving process has said last at /ping; nothing if it was healthy."""
    document: dict[str, Any] = msgspec.json.decode(ping_body or b"{}")
    return document
