"""gunicorn with several serving processes: it starts the leader first, and replaces every process that ends."""

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
from container.server.multiprocess import leader_proxy
from container.service import Service
from handler.engine.core_clients import SPARE_CLIENTS
from handler.sessions.session_store import SharedSessions

NO_SLOT = -1


class SharedServer(GunicornServer):
    """One endpoint of several processes. All methods except `new_service` and `load` run in the master.

    :ivar context: the context of this serving process; not set in the master.
    """

    context: ProcessContext
    _leader_worker: Any = None
    _leader_context: ProcessContext
    _previous_context: ProcessContext | None = None

    def load_config(self) -> None:
        super().load_config()
        self.cfg.set("workers", self.config.front_ends + 1)
        self.cfg.set("worker_class", "container.server.multiprocess.multiprocess_worker.SharedWorker")
        self.cfg.set("on_exit", self._on_exit)

    def new_service(self) -> Service:
        shared_metrics.use(self.context)
        admission = SharedAdmission(self.context.shared_state, self.context.slot)
        leads = self.context.slot == 0
        admission.limit = self.config.max_concurrent
        self.service = self._make_service(admission) if leads else Service.of(self.config, None, admission)
        self.service.peers = Peers(self.context, self.config.front_ends)
        if self.config.enable_sessions:
            limit, lifetime = self.config.max_sessions, self.config.session_expiration
            self.service.sessions = SharedSessions(self.context.sessions, limit, lifetime, time.time)
        return self.service

    def load(self) -> Flask:
        app = super().load()
        leader_proxy.install(app, self.service, self.context)
        return app

    def _pre_fork(self, arbiter: Any, worker: Any) -> None:
        """Gives a new worker its context.

        :raises HaltServer: the engine failed more often within the hour than the budget allows.
        """
        if self._leader_worker is None:
            super()._pre_fork(arbiter, worker)
            if self._previous_context is not None:
                self._previous_context.remove()
            self._previous_context = getattr(self, "_leader_context", None)
            self._leader_context = ProcessContext.of_leader(self.config.front_ends + 1 + SPARE_CLIENTS)
            self._leader_worker, worker.context = worker, self._leader_context
            return
        worker.context = replace(self._leader_context, slot=self._leader_context.shared_state.take_slot() or NO_SLOT)

    def _child_exit(self, arbiter: Any, worker: Any) -> None:
        super()._child_exit(arbiter, worker)
        context: ProcessContext = worker.context
        if worker is self._leader_worker:
            self._leader_worker = None
            context.shared_state.leader = Leader.GONE
        elif context.slot > 0:
            context.shared_state.set_member(context.slot, Member.GONE)
        shared_metrics.ended(context, worker.pid)

    def _on_exit(self, arbiter: Any) -> None:
        for context in (self._previous_context, getattr(self, "_leader_context", None)):
            if context is not None:
                context.remove()
