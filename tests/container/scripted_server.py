"""A real gunicorn with our own worker around the application, and a scripted engine in it. Prints its port.

Started by tests as a process, with `--threads` for one that parses every body in a thread, and with `--nofile=N` for a
limit of N file descriptors. `GET /scripted` tells what the engine has seen; `POST /scripted/NAME` opens a gate.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from dataclasses import replace
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication

from container.application import create_app
from container.http import connection, connections, reply_buffer
from container.server import engine_watchdog, worker
from container.server.acceptor_process import AcceptorProcess
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.startup.serving_state import ServingState
from tests.container.scripted_engine import MAX_BODY, PLACES, ScriptedEngine

# Small, so that a test can meet them.
BODY_SECONDS = 0.3
MAX_BACKLOG = 100_000
MAX_SILENCE = 0.3
KEEP_SECONDS = 30.0
LINGER_SECONDS, LINGER_SILENCE, LINGER_BYTES = 3.0, 1.5, 64 << 20
REPLY_SECONDS = 1.0
STREAM_SECONDS = 1.5


class ScriptedServer(BaseApplication):  # type: ignore[misc]  # gunicorn is untyped
    """What `EngineWorker` asks of `container.server.gunicorn_server.GunicornServer`, with a configuration for tests."""

    service: Service

    def __init__(self) -> None:
        self.acceptor = AcceptorProcess(socket.create_server(("127.0.0.1", 0), backlog=2048), 6.0)
        self.acceptor.start()
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": f"fd://{os.dup(self.acceptor.listener.fileno())}",
            "pre_fork": lambda arbiter, worker: self.acceptor.start(),
            "on_exit": lambda arbiter: self.acceptor.stop(),
            "worker_class": "container.server.worker.EngineWorker",
            "graceful_timeout": 1,
            "loglevel": "warning",
            "control_socket_disable": True,
            "when_ready": lambda arbiter: print(arbiter.LISTENERS[0].sock.getsockname()[1], flush=True),
        }
        for name, value in settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def new_service(self) -> Service:
        limits: dict[str, Any] = {"max_concurrent": PLACES, "max_body": MAX_BODY}
        if "--deadlines" in sys.argv:
            limits |= {"deadline": REPLY_SECONDS, "stream_deadline": STREAM_SECONDS}
        for given in sys.argv:
            if given.startswith("--budget="):
                limits["body_budget"] = int(given.removeprefix("--budget="))
            if given.startswith("--body="):
                limits["max_body"] = int(given.removeprefix("--body="))
            if given.startswith("--batches="):
                limits["batch_store"] = given.removeprefix("--batches=")
        limits |= {"page": "--page" in sys.argv, "enable_sessions": "--sessions" in sys.argv}
        self.service = Service.of(EndpointConfig(model="scripted", **limits))
        return self.service

    def load(self) -> Flask:
        app = create_app(self.service)

        @app.get("/scripted")
        def seen() -> dict[str, int]:
            engine: Any = self.service.engine
            return {
                "begun": engine.begun,
                "cancelled": engine.cancelled,
                "in_engine": engine.unfinished(),
                "in_flight": self.service.admission.count,
            }

        @app.post("/scripted/<gate>")
        def open_gate(gate: str) -> dict[str, str]:
            engine: Any = self.service.engine
            engine.open(gate)
            return {}

        return app


def start(state: ServingState) -> None:
    """Instead of bringing a model and starting vLLM."""
    engine = ScriptedEngine(state.loop, quick="--threads" not in sys.argv)
    engine.traits = replace(engine.traits, multimodal="--images" in sys.argv)
    state.engine = engine  # type: ignore[assignment]  # a stand-in
    state.lifecycle.ready()


if __name__ == "__main__":
    for limit in (int(given.removeprefix("--nofile=")) for given in sys.argv if given.startswith("--nofile=")):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if "--patient" not in sys.argv:
        connection.ARRIVAL_SECONDS = BODY_SECONDS
    reply_buffer.MAX_BACKLOG, reply_buffer.MAX_SILENCE = MAX_BACKLOG, MAX_SILENCE
    connection.LINGER_SECONDS, connection.LINGER_SILENCE = LINGER_SECONDS, LINGER_SILENCE
    connection.LINGER_BYTES = LINGER_BYTES
    connections.KEEP_SECONDS = KEEP_SECONDS
    engine_watchdog.LINGER = 0.1
    worker.start = start  # type: ignore[attr-defined]  # the name under which it has imported it
    ScriptedServer().run()
