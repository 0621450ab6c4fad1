"""gunicorn's worker: the loop with all connections and the embedded engine, the start and the watchdog.

Read in gunicorn 27 (workers/base.py, arbiter.py): the arbiter expects a sign of life from the worker's main thread, and
sends it SIGTERM after it has closed its own listeners. The acceptor's process goes on accepting, so a client that
connects during the drain reads "503, draining" and not a reset.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

from gunicorn.workers.base import Worker

from container.application import RequestRouter
from container.http.connections import Connections
from container.routes.ping import ping_reply
from container.server import malloc
from container.server.connection_intake import ConnectionIntake
from container.server.engine_watchdog import watch_engine
from container.server.held_requests import HeldRequests
from container.server.ping_state import PASSED_ON
from container.service import Service
from handler.custom_code.code_contract import PING
from handler.errors import Draining
from handler.neuron.hardware.neuron_monitor import start_monitor
from handler.startup.lifecycle import ServingStatus
from handler.startup.start import start

# gunicorn's arbiter exits with this status when a worker does (Arbiter.WORKER_BOOT_ERROR). No restart can help.
EXIT_CANNOT_START = 3
# The engine failed after it had served, or as it started again. The arbiter starts another, within the restart budget.
EXIT_ENGINE_FAILED = 70
SIGN_OF_LIFE_SECONDS = 1.0
# Seconds that a thread may hold the interpreter while another waits. With Python's 5 ms the parsing of one request
# delays the tokens of all others by as much; measured in benchmarks/README.md.
SWITCH_INTERVAL = 0.0005
# Of a drain: how often connections of WebSockets are looked at, and seconds for the last replies to reach clients.
LAST_LOOKS, LAST_REPLIES_SECONDS = 20, 1.5


class EngineWorker(Worker):  # type: ignore[misc]  # gunicorn is untyped
    """One serving process.

    It leads its own process group. So the master can always end the engine's core together with it, and Ctrl-C in a
    terminal reaches the master alone.
    """

    service: Service
    connections: Connections | None = None

    def init_process(self) -> None:
        os.setpgid(0, 0)
        malloc.limit_arenas()
        malloc.start_trimming()
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.service = self.app.new_service()
        self._woken = threading.Event()
        super().init_process()

    def run(self) -> None:
        if not self.alive:  # what waits for this process stays for the master, which answers it
            leave(0)
        service = self.service
        router = RequestRouter(service, self.wsgi)
        self.connections = connections = Connections(service.loop, router.answer, service.observer, service.bodies)
        service.lifecycle.changed = self._publish
        self._publish()
        service.monitor = start_monitor(service.config.neuron_monitor)
        if service.observer.emf is not None:
            service.observer.emf.begin()
        intake = ConnectionIntake(self.app.acceptor.channel, connections, service.lifecycle.fail)
        service.loop.call(intake.begin)
        service.loop.spawn(HeldRequests(service, connections).run())
        threading.Thread(target=start, args=(service,), name="start", daemon=True).start()
        if service.batches is not None:
            service.batches.start()
        threading.Thread(
            target=watch_engine, args=(service, self.end, self._publish), name="engine-watchdog", daemon=True
        ).start()
        try:
            while self.alive and self.ppid == os.getppid():
                self.notify()
                self._woken.wait(SIGN_OF_LIFE_SECONDS)
        finally:
            self._stop()
            leave(0)  # a thread in a long import would keep the interpreter running past SageMaker's 30 s

    def _stop(self) -> None:
        service = self.service
        service.observer.close()
        # Without an engine the watchdog does not take its end for a failure.
        engine, service.engine = service.engine, None
        if engine is not None:
            engine.stop()
        if service.models is not None:
            service.models.stop()
        if service.monitor is not None:
            service.monitor.stop()

    def _publish(self) -> None:
        """Tells the acceptor what /ping answers, or that this process answers it."""
        status, body = ping_reply(self.service)
        code = self.service.custom_code
        own = status == 200 and code is not None and code.answers(*PING)
        self.app.acceptor.state.write(PASSED_ON if own else status, body)

    def end(self) -> None:
        """Ends the process after a failure of the engine, without waiting for the engine.

        If a process that replaces another one fails as it starts, one more follows, within the budget.
        """
        self.service.observer.close()
        can_start = self.service.lifecycle.served or self.app.restarted
        leave(EXIT_ENGINE_FAILED if can_start else EXIT_CANNOT_START)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains on SIGTERM: running requests may finish and new ones get a 503. Then the worker ends."""
        if self.connections is None:  # nothing has begun: `run` ends at once
            self.alive = False
        elif self.service.lifecycle.status.state is not ServingStatus.DRAINING:
            self.service.lifecycle.drain()
            self.service.recovery.successor = lambda: False
            threading.Thread(target=self._drain, args=(self.connections,), name="drain", daemon=True).start()

    def _drain(self, connections: Connections) -> None:
        service = self.service
        service.loop.call(connections.close_conversations)
        if not service.admission.wait_empty(service.config.drain):
            for engine in service.engines():
                engine.fail_requests(Draining())  # a stream that is ended early has the error as its last event
            service.admission.wait_empty(1.0)
        for _ in range(LAST_LOOKS):  # those that opened when the drain began, or had just sent their last reply
            service.loop.call(connections.close_conversations)
            if connections.wait_closed(1.0 / LAST_LOOKS, conversations=True):
                break
        service.loop.call(connections.stop)
        connections.wait_closed(LAST_REPLIES_SECONDS)
        self.alive = False
        self._woken.set()


def leave(status: int) -> None:
    """Ends this process at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
