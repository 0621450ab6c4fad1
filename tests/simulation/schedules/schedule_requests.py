"""Clients' requests to the simulated fleet, over the product's own recovery: real sockets, a simulated engine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from container.recovery.death_log import DEATHS, REFUSED, DeathLog
from container.recovery.recovery import Recovery
from container.recovery.request_channel import RequestChannel
from container.requests.http_limits import Deadline
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
    hostile: list[float] = field(default_factory=list)

    def close(self) -> None:
        """As the system does for a container that has ended. Requests that wait in the channel are closed with it."""
        os.close(self.deaths._file)
        self.channel._sender.close()
        self.channel._receiver.close()


class ServingProcess:
    """A process that serves: it takes over the requests of the one before.

    :param died: is called when its engine has died.
    """

    def __init__(self, container: Container, process: Machine, died: Callable[[], None]) -> None:
        self._container, self._process, self._died = container, process, died
        self._recovery = Recovery(container.channel, container.deaths, process.now(), successor=lambda: True)
        self._running: dict[socket.socket, RequestRecord] = {}
        while (handed := self._recovery.receive()) is not None:
            self._run(handed.connection, handed.request.partition(b"\r\n\r\n")[2], may_rerun=False)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def connect(self, *, hostile: bool) -> socket.socket:
        """Returns a new client's end of its connection. The request has been sent."""
        client, server = socket.socketpair()
        client.setblocking(False)
        self._run(server, HOSTILE if hostile else HONEST, may_rerun=True)
        return client

    def _run(self, connection: socket.socket, body: bytes, *, may_rerun: bool) -> None:
        record = RequestRecord(ENVIRON, began=self._process.now(), may_rerun=may_rerun)
        record.request_id = f"{self._process.random.getrandbits(32):08x}"
        try:
            self._recovery.keep(record, body)
        except BodyQuarantined as error:
            _reply(connection, error.status)
            return
        time, deaths = self._process.time, self._container.hostile
        if body == HOSTILE and len(deaths) >= DEATHS and time.now - deaths[-1] < REFUSED * 0.95:
            raise Violation(f"{self._process.name} runs a body that ended its engine at {deaths}")
        self._running[connection] = record
        end = time.now + self._process.random.uniform(0, LONGEST)
        time.spawn(self._process, partial(self._end, connection, body), end)

    def _end(self, connection: socket.socket, body: bytes) -> None:
        if body == HOSTILE:
            self._container.hostile.append(self._process.time.now)
            self.engine_dies()
        elif self._running.pop(connection, None) is not None:
            _reply(connection, 200)

    def engine_dies(self) -> None:
        error, expires = EngineFailed("simulated"), self._process.now() + 60
        for connection, record in self._running.items():
            deadline = Deadline(60, expires, stream=False)
            if self._recovery.failed(error, record, ENVIRON, connection, deadline):
                connection.close()
            else:
                _reply(connection, error.status)
        self._running.clear()
        self._died()

    def killed(self) -> None:
        """With the container: the system closes the connections, which the clients see."""
        for connection in self._running:
            connection.close()
        self._running.clear()


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
