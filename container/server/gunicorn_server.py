"""gunicorn's configuration. The master takes over the bound port and supervises the serving process.

At SIGTERM the serving process drains (container/server/worker.py).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.errors import HaltServer

from container.application import create_app
from container.recovery.death_log import WINDOW, DeathLog, failures
from container.recovery.recovery import Recovery
from container.recovery.request_channel import RequestChannel
from container.server.acceptor_process import BACKLOG, AcceptorProcess
from container.server.failed_start import last_words, serve_page
from container.server.held_requests import refuse
from container.server.preload import Preload, preload
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.errors import Draining

# A worker whose main loop is silent this long is replaced. Importing torch holds the interpreter for seconds.
HEARTBEAT = 120
IN_MEMORY = "/dev/shm"  # noqa: S108
# What /ping answers until another serving process has taken the place of one that has ended.
RESTARTING = (503, b'{"status":"starting","stage":"start serving process","stage_seconds":0.0,"seconds":0.0}')
# The reason of a failure that the serving process could not report.
KILLED = "the serving process ended without a reason; the container's log may have one"


class GunicornServer(BaseApplication):  # type: ignore[misc]  # gunicorn is untyped
    """One endpoint under gunicorn.

    :param make_service: makes the service that the routes share. Called in the serving process.
    :param acceptor: listens on the endpoint's port.
    :ivar restarted: this serving process replaces another one.
    """

    def __init__(self, config: EndpointConfig, make_service: Callable[[], Service], acceptor: AcceptorProcess) -> None:
        self.config = config
        self._make_service = make_service
        self.acceptor = acceptor
        self._starts: list[float] = []
        self.restarted = False
        self._last_failure: dict[str, object] | None = None
        self._preload = Preload(partial(preload, config), acceptor.state, config.preload_after)
        self._channel, self._deaths = RequestChannel(), DeathLog()
        self.service: Service
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": f"fd://{os.dup(self.acceptor.listener.fileno())}",
            "worker_class": "container.server.worker.EngineWorker",
            "workers": 1,
            "backlog": BACKLOG,
            "timeout": HEARTBEAT,
            "graceful_timeout": int(self.config.drain) + 4,
            "loglevel": "warning",
            "errorlog": None,  # its lines are in the log, in the log's format
            "on_starting": self._on_starting,
            "proc_name": "serve",
            "pre_fork": self._pre_fork,
            "post_fork": self._post_fork,
            "child_exit": self._child_exit,
            "on_exit": self._on_exit,
            "worker_tmp_dir": IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None,  # gunicorn's heartbeat
            "control_socket_disable": True,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def _on_starting(self, arbiter: Any) -> None:
        """Has SIGHUP, which a closed terminal sends, end the server. gunicorn would start a second engine beside it.

        With `nohup` the signal is ignored, and stays so.
        """
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        arbiter.handle_hup = (lambda: None) if ignored else arbiter.handle_term
        arbiter.log.error_log.propagate = True

    def load(self) -> Flask:
        return create_app(self.service)

    def new_service(self) -> Service:
        """Makes the service. Called in the serving process, before its routes are made."""
        self.service = self._make_service()
        self.service.recovery = Recovery(
            self._channel, self._deaths, self._starts[-1], lambda: self._may_start(time.monotonic())
        )
        self.service.last_failure = self._last_failure
        return self.service

    def _may_start(self, now: float) -> bool:
        """Whether another engine may take the place of the one that ends now."""
        return failures(self._starts, self._deaths.read(), now) <= self.config.engine_restarts

    def _pre_fork(self, arbiter: Any, worker: Any) -> None:
        """Counts the starts of serving processes. Called in the master before each start.

        :raises HaltServer: the engine failed more often within the hour than the budget allows.
        """
        now = time.monotonic()
        if (count := failures(self._starts, self._deaths.read(), now)) > self.config.engine_restarts:
            raise HaltServer(f"The engine failed {count} times within an hour.", 1)
        self.restarted = bool(self._starts)
        self._starts.append(now)
        self._deaths.forget(now - WINDOW)
        self.acceptor.start()
        if self.restarted:
            reason = last_words(self.acceptor.state.read()[1]).get("reason", KILLED)
            self._last_failure = {"reason": reason, "at": time.time()}
            self.acceptor.state.write(*RESTARTING)
        if self.config.preload_after > 0 and self.config.engine != "none":
            self._preload.settle()
            self._preload.begin()

    def _post_fork(self, arbiter: Any, worker: Any) -> None:
        """Has SIGTERM end the serving process. Called in it, before gunicorn's worker sets its own handlers.

        Until now it had the master's handler, whose queue nobody reads here.
        """
        signal.signal(signal.SIGTERM, worker.handle_exit)
        while not arbiter.SIG_QUEUE.empty():
            if arbiter.SIG_QUEUE.get_nowait() == signal.SIGTERM:
                worker.alive = False

    def _child_exit(self, arbiter: Any, worker: Any) -> None:
        """Ends the core of the engine after its serving process. Called in the master.

        A core that lived on would keep its memory and its Neuron cores, and the next start would fail on them.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.pid, signal.SIGKILL)

    def _on_exit(self, arbiter: Any) -> None:
        """Answers requests that no serving process has taken over: the container was stopped between two of them.

        Then it shows why the endpoint failed, if it did and the page is on.
        """
        while (handed := self._channel.receive()) is not None:
            refuse(handed, Draining())
        if self.config.page and isinstance(sys.exception(), HaltServer):
            serve_page(self.config, self.acceptor, KILLED)
        self.acceptor.stop()
