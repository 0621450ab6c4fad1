"""Requests of an engine that has died, while the next one starts. Used by the main thread only."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from container.recovery.request_channel import HandedRequest
from container.service import Service
from handler.errors import EndpointError, NotReady

logger = logging.getLogger(__name__)
# How often held requests are looked at, in seconds.
INTERVAL = 0.1


class HeldRequests:
    """Holds each request until the engine is ready, its deadline passes, its client leaves, or the process drains.

    A held request is admitted and counted. It stays so when it is run.

    :param run: has a thread answer a request.
    :param refuse: sends an error in place of a reply, and closes the connection.
    """

    def __init__(
        self,
        service: Service,
        run: Callable[[HandedRequest], None],
        refuse: Callable[[HandedRequest, EndpointError], None],
    ) -> None:
        self._service, self._run, self._refuse = service, run, refuse
        self._held: list[HandedRequest] = []
        self._receiving = True

    def timeout(self, seconds: float) -> float:
        """How long the main loop may wait for events.

        :param seconds: how long it would wait without held requests.
        """
        return min(seconds, INTERVAL) if self._held else seconds

    def check(self) -> None:
        """Takes what the earlier process has handed over, and runs, ends or keeps what is held."""
        service = self._service
        problem: EndpointError | None = None
        try:
            service.lifecycle.require_ready()
        except EndpointError as error:
            problem = error
        arrived = []
        while self._receiving and (handed := service.recovery.receive()) is not None:
            try:
                service.admission.enter()
            except EndpointError as error:
                self._refuse(handed, error)
                continue
            self._held.append(handed)
            arrived.append(handed.note.request_id)
        if arrived:
            logger.warning("%d requests wait for the next engine: %s", len(arrived), ", ".join(arrived))
        # A process that serves sends to this channel. What it sends is for its own successor.
        self._receiving = isinstance(problem, NotReady)
        self._held = [handed for handed in self._held if not self._ended(handed, problem)]

    def _ended(self, handed: HandedRequest, problem: EndpointError | None) -> bool:
        if problem is None:
            self._run(handed)
            return True
        deadline = handed.note.deadline
        if client_left(handed.connection):
            handed.connection.close()
        elif not isinstance(problem, NotReady):
            self._refuse(handed, problem)
        elif deadline.expires <= time.monotonic():
            self._refuse(handed, deadline.error())
        else:
            return False
        self._service.admission.leave()
        return True


def client_left(connection: socket.socket) -> bool:
    """Whether the client has closed its connection. It may have sent more bytes, which stay unread."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
