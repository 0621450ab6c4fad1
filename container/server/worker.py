"""gunicorn's worker with an embedded engine. During a drain it answers 503 instead of refusing connections.

Read in gunicorn 27 (workers/gthread.py, arbiter.py): on SIGTERM the master closes its listeners and signals the
worker. A worker whose accept loop keeps running goes on accepting connections. So a client that connects during the
drain reads "503, draining" and not a reset.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

from container.connection.lingering_close import LingeringClose
from container.routes.ping import ping_reply
from container.server import malloc
from container.server.connection_worker import ConnectionWorker
from container.server.descriptor_shortage import AcceptPause
from container.server.engine_watchdog import watch_engine
from container.server.held_requests import HeldRequests
from container.server.ping_state import PASSED_ON
from container.telemetry.neuron_monitor import start_monitor
from handler.custom_code.code_contract import PING
from handler.errors import Draining
from handler.startup.lifecycle import ServingStatus
from handler.startup.start import start

# gunicorn's arbiter exits with this status when a worker does (Arbiter.WORKER_BOOT_ERROR). No restart can help.
EXIT_CANNOT_START = 3
# The engine failed after it had served, or as it started again. The arbiter starts another, within the restart budget.
EXIT_ENGINE_FAILED = 70
LAST_LOOKS = 20
# Seconds that a thread may hold the interpreter while another waits. With Python's 5 ms the parsing of one request
# delays the tokens of all others by as much; measured in benchmarks/README.md.
SWITCH_INTERVAL = 0.0005


class EngineWorker(ConnectionWorker):
    """One serving process: gunicorn's threads, the engine's loop, the start and the watchdog.

    It leads its own process group. So the master can always end the engine's core together with it, and Ctrl-C in a
    terminal reaches the master alone.
    """

    def init_process(self) -> None:
        os.setpgid(0, 0)
        malloc.limit_arenas()
        malloc.start_trimming()
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.service = self.app.new_service()
        self.lingering = LingeringClose()
        super().init_process()

    def run(self) -> None:
        self.accept_pause = AcceptPause(self.poller, self.accept)
        self.held_requests = HeldRequests(self.service, self.run_handed, self.refuse_handed)
        self.sockets = [self.app.acceptor.channel]
        self.service.lifecycle.changed = self._publish
        self._publish()
        self.service.monitor = start_monitor(self.service.config.neuron_monitor)
        if self.service.observer.emf is not None:
            self.service.observer.emf.begin()
        threading.Thread(target=start, args=(self.service,), name="start", daemon=True).start()
        if self.service.batches is not None:
            self.service.batches.start()
        threading.Thread(
            target=watch_engine, args=(self.service, self.end, self._publish), name="engine-watchdog", daemon=True
        ).start()
        try:
            super().run()
        finally:
            if self._dispatcher is not None:
                self._dispatcher.context.deferred_observer.close()
            # Without an engine the watchdog does not take its end for a failure.
            engine, self.service.engine = self.service.engine, None
            if engine is not None:
                engine.stop()
            if self.service.models is not None:
                self.service.models.stop()
            if self.service.monitor is not None:
                self.service.monitor.stop()
            if self.service.observer.tracer is not None:
                self.service.observer.tracer.stop()
            leave(0)  # a thread in a long import would keep the interpreter running past SageMaker's 30 s

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
        can_start = self.service.lifecycle.served or self.app.restarted
        leave(EXIT_ENGINE_FAILED if can_start else EXIT_CANNOT_START)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains on SIGTERM: running requests may finish and new ones get a 503. Then gunicorn ends the worker."""
        if self.service.lifecycle.status.state is not ServingStatus.DRAINING:
            self.service.lifecycle.drain()
            self.service.recovery.no_successor()
            threading.Thread(target=self._drain, args=(sig, frame), name="drain", daemon=True).start()

    def _drain(self, sig: int, frame: FrameType | None) -> None:
        service = self.service
        service.held_connections.close_idle()
        if not service.admission.wait_empty(service.config.drain):
            for engine in service.engines():
                engine.fail_requests(Draining())  # a stream that is ended early has the error as its last event
            service.admission.wait_empty(1.0)
        for _ in range(LAST_LOOKS):  # those that opened when the drain began, or had just sent their last reply
            service.held_connections.close_idle()
            if service.held_connections.wait_released(1.0 / LAST_LOOKS):
                break
        if self._dispatcher is not None:
            self._dispatcher.stop()
        self.lingering.hurry()
        super().handle_exit(sig, frame)


def leave(status: int) -> None:
    """Ends this process at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
