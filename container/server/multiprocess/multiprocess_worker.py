"""gunicorn's worker with several processes: the leader, which owns the engine, or a front end."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from types import FrameType

from gunicorn import util

from container.process_group.peers import Peers
from container.process_group.process_context import ProcessContext
from container.server.descriptor_shortage import Acceptable
from container.server.multiprocess.follower import follow, join
from container.server.multiprocess.leader import accepts, lead
from container.server.multiprocess.leader_proxy import HEADER
from container.server.worker import EXIT_ENGINE_FAILED, EngineWorker, leave
from handler.startup.lifecycle import ServingStatus

BACKLOG = 128
# How long a front end leaves a new connection to those that have fewer, and how often. At most 10 ms in all, in case
# they cannot accept it.
YIELD_SECONDS, YIELDS = 0.001, 10


class SharedWorker(EngineWorker):
    """One of several workers. All have the listener. The shared state decides which of them accept connections.

    :ivar context: set by the master before this process starts.
    """

    context: ProcessContext
    _yielded = 0

    def init_process(self) -> None:
        self.app.context = self.context
        role = "leader" if self.context.slot == 0 else f"front end {self.context.slot}"
        util._setproctitle(f"{role} [{self.cfg.proc_name}]")
        super().init_process()

    @property
    def peers(self) -> Peers:
        peers = self.service.peers
        assert peers is not None
        return peers

    def begin(self) -> None:
        if self.peers.leads:
            self._answer_peers()
            super().begin()
            self._run(lead, self._changed)
        else:
            if self.service.observer.emf is not None:
                self.service.observer.emf.begin()
            if self.context.slot > 0:  # else no slot was left: the leader fails, and a new one starts
                self._run(join, self._changed, lambda: leave(EXIT_ENGINE_FAILED))
            self._run(follow, self._changed, lambda: leave(0))

    def _run(self, target: object, *rest: object) -> None:
        threading.Thread(target=target, args=(self.service, self.peers, *rest), daemon=True).start()  # type: ignore[arg-type]

    def _answer_peers(self) -> None:
        """Listens for requests of the front ends, on a socket that no client can reach."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(self.context.socket))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self.poller.register(listener, selectors.EVENT_READ, self.accept)

    def _changed(self) -> None:
        """Has the main thread decide anew whether to accept connections. Callable from any thread."""
        self.method_queue.defer(self.set_accept_enabled, True)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled and self.alive and self._accepts())

    def _accepts(self) -> bool:
        if self.peers.leads:
            return accepts(self.service, self.peers)
        return self.service.lifecycle.status.state is not ServingStatus.STARTING

    def notify(self) -> None:
        """Publishes the number of connections. gunicorn calls it in each iteration of the main loop."""
        super().notify()
        if self.context.slot > 0:
            self.peers.shared_state.set_connections(self.context.slot, self.nr_conns)

    def reply_headers(self) -> tuple[tuple[str, str], ...]:
        return ((HEADER, str(self.context.slot)),)

    def accept(self, listener: Acceptable) -> None:
        """Accepts a connection, unless another front end has fewer.

        A new connection wakes every process, and the first one accepts it. Of a burst the first would accept nearly
        all. So a process with more connections than another waits a moment, and accepts what is left.
        """
        shared_state, slot = self.peers.shared_state, self.context.slot
        fewest = shared_state.fewest_connections(slot) if slot > 0 else None
        if fewest is not None and self.nr_conns > fewest and self._yielded < YIELDS:
            self._yielded += 1
            time.sleep(YIELD_SECONDS)
            return
        self._yielded = 0
        super().accept(listener)
        if slot > 0:
            shared_state.set_connections(slot, self.nr_conns)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._changed()

    def _finish(self, seconds: float) -> None:
        """Waits for the requests. The leader ends last: the others still need its engine."""
        if self.peers.leads:
            began = time.monotonic()
            self.peers.wait_alone(seconds + 1.5)
            seconds = max(0.0, seconds - (time.monotonic() - began))
        super()._finish(seconds)
