"""Clients' requests to the simulated fleet, over the product's own recovery: real sockets, a simulated engine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from container.recovery.death_log import REFUSED, DeathLog
from container.recovery.recovery import Recovery
from container.recovery.request_channel import RequestChannel
from container.requests.deadline import Deadline
from container.requests.request_record import RequestRecord
from handler.errors import BodyQuarantined, EngineFailed
from tests.simulation.fleet_time import Machine
from tests.simulation.schedules.schedule_rules import Violation

ENVIRON = {"REQUEST_METHOD": "POST", "PATH_INFO": "/invocations", "CONTENT_TYPE": "application/json"}
HONEST, HOSTILE = b'{"prompt": "honest"}', b'{"prompt": "hostile"}'
LONGEST = 20.0  # seconds


@dataclass(slots=True)
class Container:
    """What outlives a serving process: the channel to the next one, and the deaths of engines."""

    channel: RequestChannel = field(default_factory=RequestChannel)
    deaths: DeathLog = field(default_factory=DeathLog)
    convicted_at: float | None = None

    def close(self) -> None:
        """As the system does for a container that has ended. Requests that wait in the channel are closed with it."""
        os.close(self.deaths._file)
        self.channel._sender.close()
        self.channel._receiver.close()


@dataclass(frozen=True, slots=True)
class Request:
    connection: socket.socket
    record: RequestRecord
    body: bytes


class ServingProcess:
    """A process that serves: it takes over the requests of the one before.

    :param died: is called when its engine has died.
    """

    def __init__(self, container: Container, process: Machine, died: Callable[[], None]) -> None:
        self._container, self._process, self._died = container, process, died
        self._recovery = Recovery(container.channel, container.deaths, process.now(), successor=lambda: True)
        # The requests that the core has, those that wait for it, and those that are to be alone in it.
        self._running: dict[socket.socket, Request] = {}
        self._waiting: list[Request] = []
        self._suspects: list[Request] = []
        self._trial: Request | None = None
        while (handed := self._recovery.receive()) is not None:
            self._run(handed.connection, handed.request.partition(b"\r\n\r\n")[2])

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting or self._suspects or self._trial)

    def connect(self, *, hostile: bool) -> socket.socket:
        """Returns a new client's end of its connection. The request has been sent."""
        client, server = socket.socketpair()
        client.setblocking(False)
        self._run(server, HOSTILE if hostile else HONEST)
        return client

    def _run(self, connection: socket.socket, body: bytes) -> None:
        record = RequestRecord(ENVIRON, began=self._process.now(), may_rerun=True)
        record.request_id = f"{self._process.random.getrandbits(32):08x}"
        try:
            self._recovery.keep(record, body)
        except BodyQuarantined as error:
            _reply(connection, error.status)
            return
        request = Request(connection, record, body)
        (self._suspects if self._recovery.suspected(record) else self._waiting).append(request)
        self._admit()

    def _admit(self) -> None:
        """Has suspected requests run alone, and the others beside each other."""
        while self._suspects and not self._running and self._trial is None:
            request = self._suspects.pop(0)
            if request.body == HOSTILE:
                self._trial = request
                end = self._process.time.now + self._process.random.uniform(0, 1)
                self._process.time.spawn(self._process, self._trial_ends, end)
            else:
                self._recovery.tried(request.record, died=False)
                self._waiting.append(request)
        if not self._suspects and self._trial is None:
            waiting, self._waiting = self._waiting, []
            for request in waiting:
                self._begin(request)

    def _begin(self, request: Request) -> None:
        time, convicted_at = self._process.time, self._container.convicted_at
        if request.body == HOSTILE and convicted_at is not None and time.now - convicted_at < REFUSED * 0.95:
            raise Violation(f"{self._process.name} runs a body of which its engine died alone at {convicted_at}")
        self._running[request.connection] = request
        end = time.now + self._process.random.uniform(0, LONGEST)
        time.spawn(self._process, partial(self._end, request), end)

    def _end(self, request: Request) -> None:
        if self._running.get(request.connection) is not request:
            return
        if request.body == HOSTILE:
            self.engine_dies()
        else:
            del self._running[request.connection]
            _reply(request.connection, 200)
            self._admit()

    def _trial_ends(self) -> None:
        request = self._trial
        if request is None:
            return
        self._trial = None
        self._container.convicted_at = self._process.time.now
        try:
            self._recovery.tried(request.record, died=True)
        except BodyQuarantined as error:
            _reply(request.connection, error.status)
        self.engine_dies()

    def engine_dies(self) -> None:
        """It also dies of nothing that a request did. Then nobody is convicted, who may be on trial."""
        outside = [*self._waiting, *self._suspects, *([self._trial] if self._trial else ())]
        for request in (*self._running.values(), *outside):
            error = EngineFailed("simulated", in_core=request.connection in self._running)
            deadline = Deadline(60, self._process.now() + 60, stream=False)
            if self._recovery.failed(error, request.record, ENVIRON, request.connection.fileno(), deadline):
                request.connection.close()
            else:
                _reply(request.connection, error.status)
        self._forget()
        self._died()

    def _forget(self) -> None:
        self._running.clear()
        self._waiting, self._suspects, self._trial = [], [], None

    def killed(self) -> None:
        """With the container: the system closes the connections, which the clients see."""
        trial = [self._trial] if self._trial else []
        for request in (*self._running.values(), *self._waiting, *self._suspects, *trial):
            request.connection.close()
        self._forget()


def _reply(connection: socket.socket, status: int) -> None:
    connection.sendall(str(status).encode())
    connection.close()


def ended(client: socket.socket) -> bool:
    """Whether a client has a reply, or sees that its connection was closed."""
    try:
        client.recv(16)
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
