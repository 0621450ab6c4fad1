"""Requests of an engine that has died, while the next one starts."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import suppress

from container.http.connections import Connections
from container.http.reply_head import closing_reply
from container.recovery.request_channel import HandedRequest
from container.service import Service
from handler.errors import EndpointError, EngineFailed, NotReady

logger = logging.getLogger(__name__)
# How often held requests are looked at, in seconds.
INTERVAL = 0.1


class HeldRequests:
    """Holds each request until the engine is ready, its deadline passes, its client leaves, or the process drains.

    If the engine cannot start, the next serving process gets what is held, if there will be one. A held request is
    admitted and counted, and so it is again when it is run. All methods run on the loop.
    """

    def __init__(self, service: Service, connections: Connections) -> None:
        self._service, self._connections = service, connections
        self._held: list[HandedRequest] = []

    async def run(self) -> None:
        """Takes what the earlier process has handed over, and runs until nothing is held."""
        self.receive()
        while self._held:
            self.look()
            await asyncio.sleep(INTERVAL)

    def receive(self) -> None:
        """Takes all at once: who handed it over has ended. What this process sends is for its own successor."""
        service, arrived = self._service, []
        while (handed := service.recovery.receive()) is not None:
            try:
                service.admission.enter()
            except EndpointError as error:
                refuse(handed, error)
                continue
            self._held.append(handed)
            arrived.append(handed.note.request_id)
        if arrived:
            logger.warning("%d requests wait for the next engine: %s", len(arrived), ", ".join(arrived))

    def look(self) -> None:
        """Runs, ends or keeps what is held."""
        problem: EndpointError | None = None
        try:
            self._service.lifecycle.require_ready()
        except EndpointError as error:
            problem = error
        self._held = [handed for handed in self._held if not self._ended(handed, problem)]

    def _ended(self, handed: HandedRequest, problem: EndpointError | None) -> bool:
        deadline = handed.note.deadline
        if problem is None:
            self._connections.take(handed.connection, handed)
        elif client_left(handed.connection):
            handed.connection.close()
        elif deadline.expires <= time.monotonic():
            refuse(handed, deadline.error())
        elif isinstance(problem, NotReady):
            return False
        elif not isinstance(problem, EngineFailed) or not self._service.recovery.pass_on(handed):
            refuse(handed, problem)
        self._service.admission.leave()
        return True


def refuse(handed: HandedRequest, error: EndpointError) -> None:
    """Answers a request with an error, and closes its connection: all of it was read."""
    with handed.connection as connection, suppress(OSError):
        target = handed.request.split(b" ", 2)[1].decode("latin-1")
        connection.send(closing_reply(error, target.partition("?")[0]), socket.MSG_DONTWAIT)


def client_left(connection: socket.socket) -> bool:
    """Whether the client has closed its connection. It may have sent more bytes, which stay unread."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
