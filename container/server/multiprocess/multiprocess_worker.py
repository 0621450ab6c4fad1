"""gunicorn's worker where there are several: the leader, which owns the engine, or a front end."""

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
from container.server.multiprocess.follower import follow, join
from container.server.multiprocess.leader import accepts, lead
from container.server.multiprocess.leader_proxy import HEADER
from container.server.worker import EXIT_ENGINE_FAILED, EngineWorker, leave
from handler.startup.lifecycle import ServingStatus

BACKLOG = 128
# How long a front end leaves a connection to those that have fewer, and how often: 10 ms at the most, should they not
# be able to take it.
YIELD_SECONDS, YIELDS = 0.001, 10


class SharedWorker(EngineWorker):
    """Every worker has the listener; which of them accept is told by the board.

    :ivar post: set by the master before this process is started.
    """

    post: ProcessContext
    _yielded = 0

    def init_process(self) -> None:
        self.app.post = self.post
        role = "leader" if self.post.seat == 0 else f"front end {self.post.seat}"
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
            if self.post.seat > 0:  # else there is none left: the leader is about to begin anew
                self._run(join, self._changed, lambda: leave(EXIT_ENGINE_FAILED))
            self._run(follow, self._changed, lambda: leave(0))

    def _run(self, target: object, *rest: object) -> None:
        threading.Thread(target=target, args=(self.service, self.peers, *rest), daemon=True).start()  # type: ignore[arg-type]

    def _answer_peers(self) -> None:
        """What only the leader knows is asked of it on a socket that no client reaches."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(self.post.socket))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self.poller.register(listener, selectors.EVENT_READ, self.accept)

    def _changed(self) -> None:
        """From any thread: the main one looks whether it is to accept."""
        self.method_queue.defer(self.set_accept_enabled, True)

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled and self.alive and self._accepts())

    def _accepts(self) -> bool:
        if self.peers.leads:
            return accepts(self.service, self.peers)
        return self.service.lifecycle.status.state is not ServingStatus.STARTING

    def notify(self) -> None:
        """In each turn of the main loop."""
        super().notify()
        if self.post.seat > 0:
            self.peers.board.note_connections(self.post.seat, self.nr_conns)

    def reply_headers(self) -> tuple[tuple[str, str], ...]:
        return ((HEADER, str(self.post.seat)),)

    def accept(self, listener: socket.socket) -> None:
        """A new connection wakes every process, and the first takes it; of a burst, the first would take nearly all.

        So who has more connections than another gives that one a moment, and takes what it has left there.
        """
        board, seat = self.peers.board, self.post.seat
        fewest = board.fewest_connections(seat) if seat > 0 else None
        if fewest is not None and self.nr_conns > fewest and self._yielded < YIELDS:
            self._yielded += 1
            time.sleep(YIELD_SECONDS)
            return
        self._yielded = 0
        super().accept(listener)
        if seat > 0:
            board.note_connections(seat, self.nr_conns)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._changed()

    def _finish(self, seconds: float) -> None:
        """The leader goes last: the others still need its engine."""
        if self.peers.leads:
            began = time.monotonic()
            self.peers.wait_alone(seconds + 1.5)
            seconds = max(0.0, seconds - (time.monotonic() - began))
        super()._finish(seconds)
