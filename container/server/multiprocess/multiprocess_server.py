"""gunicorn over several serving processes: it starts the leader first, and replaces whichever ends."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from flask import Flask

from container.process_group import shared_metrics
from container.process_group.peers import Peers
from container.process_group.process_context import ProcessContext
from container.process_group.shared_admission import SharedAdmission
from container.process_group.shared_state import Leader, Member
from container.server.gunicorn_server import GunicornServer
from container.server.multiprocess import leader_proxy as relay
from container.service import Service
from handler.engine.core_clients import SPARE_SEATS
from handler.sessions.shared_sessions import SharedSessions

NO_SEAT = -1


class SharedServer(GunicornServer):
    """One endpoint of several processes. All but `new_service` runs in the master.

    :ivar post: in a serving process, its own.
    """

    post: ProcessContext
    _leader: Any = None
    _led: ProcessContext
    _earlier: ProcessContext | None = None

    def load_config(self) -> None:
        super().load_config()
        self.cfg.set("workers", self.config.front_ends + 1)
        self.cfg.set("worker_class", "container.server.multiprocess.multiprocess_worker.SharedWorker")
        self.cfg.set("on_exit", self._on_exit)

    def new_service(self) -> Service:
        shared_metrics.use(self.post)
        admission = SharedAdmission(self.post.board, self.post.seat)
        leads = self.post.seat == 0
        admission.limit = self.config.max_concurrent
        self.service = self._make_service(admission) if leads else Service.of(self.config, None, admission)
        self.service.peers = Peers(self.post, self.config.front_ends)
        if self.config.enable_sessions:
            limit, lifetime = self.config.max_sessions, self.config.session_expiration
            self.service.sessions = SharedSessions(self.post.sessions, limit, lifetime, time.time)
        return self.service

    def load(self) -> Flask:
        app = super().load()
        relay.install(app, self.service, self.post)
        return app

    def _pre_fork(self, arbiter: Any, worker: Any) -> None:
        """:raises HaltServer: the engine failed more often within the hour than the budget allows."""
        if self._leader is None:
            super()._pre_fork(arbiter, worker)
            if self._earlier is not None:
                self._earlier.remove()
            self._earlier = getattr(self, "_led", None)
            self._led = ProcessContext.of_leader(self.config.front_ends + 1 + SPARE_SEATS)
            self._leader, worker.post = worker, self._led
            return
        worker.post = replace(self._led, seat=self._led.board.take_seat() or NO_SEAT)

    def _child_exit(self, arbiter: Any, worker: Any) -> None:
        super()._child_exit(arbiter, worker)
        post: ProcessContext = worker.post
        if worker is self._leader:
            self._leader = None
            post.board.leader = Leader.GONE
        elif post.seat > 0:
            post.board.set_member(post.seat, Member.GONE)
        shared_metrics.ended(post, worker.pid)

    def _on_exit(self, arbiter: Any) -> None:
        for post in (self._earlier, getattr(self, "_led", None)):
            if post is not None:
                post.remove()
