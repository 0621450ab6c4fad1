"""`GunicornServer` as it is, with its real worker and a scripted engine in each of its lives. Prints its port.

Arguments: a directory, and how many restarts are allowed. `POST /scripted/die` ends the engine. A later life is ready
once the directory has a file `go-N`, N being its number; with `fail-N` it cannot start. In the first life the gate
`second` is closed.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

from flask import Flask

from container.server import engine_watchdog, worker
from container.server.acceptor_process import AcceptorProcess, listen
from container.server.gunicorn_server import GunicornServer
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.errors import EngineFailed
from handler.startup.serving_state import ServingState
from tests.container.scripted_engine import ScriptedEngine

DIRECTORY, RESTARTS = Path(sys.argv[1]), int(sys.argv[2])
POLL = 0.01


class RecoveringServer(GunicornServer):
    def load(self) -> Flask:
        app, service = super().load(), self.service

        @app.get("/scripted")
        def seen() -> dict[str, int]:
            engine: Any = service.engine
            in_engine = 0 if engine is None else engine.unfinished()
            on_trial = engine is not None and engine.queue._trial is not None
            return {"in_flight": service.admission.count, "in_engine": in_engine, "on_trial": int(on_trial)}

        @app.post("/scripted/close")
        def close() -> dict[str, str]:
            engine: Any = service.engine
            engine.close("second")
            return {}

        @app.post("/scripted/die")
        def die() -> dict[str, str]:
            engine: Any = service.engine
            engine.fail_requests(EngineFailed("its process ended"))
            engine.is_dead = True
            return {}

        return app


def start(state: ServingState) -> None:
    """Instead of bringing a model and starting vLLM."""
    lives = DIRECTORY / "lives"
    with lives.open("a") as file:
        file.write("x")
    life = lives.stat().st_size
    engine = ScriptedEngine(state.loop, quick=True)
    if life > 1:
        engine.open("second")
        while not (DIRECTORY / f"go-{life}").exists():
            if (DIRECTORY / f"fail-{life}").exists():
                state.lifecycle.fail("no device")
                return
            time.sleep(POLL)
    state.engine = engine  # type: ignore[assignment]  # a stand-in
    state.lifecycle.ready()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    worker.start = start  # type: ignore[attr-defined]  # the name under which it has imported it
    engine_watchdog.LINGER = engine_watchdog.START_LINGER = 0.05
    config = EndpointConfig(
        model="scripted", port=0, engine_restarts=RESTARTS, enable_sessions=True, neuron_monitor=False
    )
    listener = listen(config)
    print(listener.getsockname()[1], flush=True)
    RecoveringServer(config, lambda: Service.of(config), AcceptorProcess(listener, config.stall)).run()
