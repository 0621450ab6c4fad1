"""Runs an application under gunicorn: one process, with a thread for each running call."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from flask import Flask, g, request
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker

from local_sagemaker.parent import end_with_parent

THREADS = 160
READ_AT_ONCE = 1024 * 1024
SHUT_DOWN = "SHUT_DOWN"
KILL = "KILL"


def listen(port: int) -> socket.socket:
    """Binds a port on loopback. 0 finds a free one.

    :raises OSError: the port is in use. The message names it.
    """
    try:
        return socket.create_server(("127.0.0.1", port), backlog=1024)
    except OSError as error:
        raise OSError(f"cannot listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0)}") from error


def read_at_most(limit: int) -> bytes | None:
    """Returns the body of the current request, and keeps it in ``g.body``. None if it has more than ``limit`` bytes.

    One that is too long is still read to its end: a client that is sending reads no reply.
    """
    parts, size = [], 0
    while part := request.stream.read(READ_AT_ONCE):
        size += len(part)
        if size <= limit:
            parts.append(part)
    if size > limit:
        return None
    g.body = b"".join(parts)
    return bytes(g.body)


def _end_with_terminal(arbiter: Any) -> None:
    """Has SIGHUP, which a closed terminal sends, end the server. gunicorn would start another worker.

    With `nohup` the signal is ignored, and stays so.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    arbiter.handle_hup = (lambda: None) if ignored else arbiter.handle_term


class GatewayWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn is untyped
    """A worker that stops at once and cuts running calls.

    A stream may last 8 minutes. gunicorn's own worker waits for its thread until it is killed, and then logs that
    memory may have run out.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        os._exit(0)

    handle_quit = handle_exit


class ServiceWorker(GatewayWorker):
    """A worker that ends the containers first. If its parent is killed, it kills them."""

    def init_process(self) -> None:
        end_with_parent(signal.SIGUSR2, self.ppid)
        super().init_process()

    def init_signals(self) -> None:
        super().init_signals()
        signal.signal(signal.SIGUSR2, self.handle_orphaned)

    def handle_orphaned(self, sig: int, frame: FrameType | None) -> None:
        signal.signal(sig, signal.SIG_IGN)  # The signal comes once for each thread of the parent.
        try:
            self.wsgi.config[KILL]()
        finally:
            os._exit(1)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        def end() -> None:
            try:
                self.wsgi.config[SHUT_DOWN]()
            finally:
                os._exit(0)

        threading.Thread(target=end, name="shut down").start()

    handle_quit = handle_exit


class GatewayServer(BaseApplication):  # type: ignore[misc]  # gunicorn is untyped
    """A gunicorn server on a bound ``listener``. So the caller knows the port beforehand."""

    def __init__(
        self,
        create: Callable[[], Flask],
        listener: socket.socket,
        when_ready: Callable[[], None],
        **options: object,
    ) -> None:
        """Configures the server.

        :param create: makes the application in the worker's process, where it may start threads and child processes.
        """
        self._create = create
        self._options = {
            "bind": f"fd://{listener.detach()}",
            "worker_class": GatewayWorker,
            "workers": 1,
            "threads": THREADS,
            # Idle connections need no thread, and boto3 keeps its connections open for long.
            "keepalive": 75,
            # Matters only for a stop so early that the worker has no signal handlers yet.
            "graceful_timeout": 2,
            "loglevel": "warning",
            "proc_name": "local_sagemaker",
            "control_socket_disable": True,
            "when_ready": lambda _arbiter: when_ready(),
            "on_starting": _end_with_terminal,
            **options,
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            if name in self.cfg.settings:  # There is no control socket to disable before gunicorn 25.1.
                self.cfg.set(name, value)

    def load(self) -> Flask:
        return self._create()
