"""`SharedServer` as it is, with real workers, and a scripted engine of its own in each of them. Prints its port.

`--broken`: no front end can join the engine.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from scripted_engine import ScriptedEngine

from container.server import worker
from container.server.listener import listen
from container.server.multiprocess import follower
from container.server.multiprocess.multiprocess_server import SharedServer
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.engine.core_clients import SPARE_CLIENTS, CoreAddresses
from handler.errors import EndpointError
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.startup.lifecycle import Lifecycle

FRONT_ENDS, PLACES = 2, 40


class OwnedEngine(ScriptedEngine):
    """The leader's engine, as far as the front ends need it."""

    def __init__(self) -> None:
        super().__init__()
        addresses = ("nowhere",) * (FRONT_ENDS + 1 + SPARE_CLIENTS)
        self.core_addresses = CoreAddresses(addresses, addresses)
        self.pids = (os.getpid(),)

    def release(self, slot: int) -> int:
        print(f"released {slot}", file=sys.stderr, flush=True)
        return 0


def start(service: Service) -> None:
    """Instead of bringing a model and starting vLLM."""
    engine: Any = OwnedEngine()
    service.engine = engine
    assert service.peers is not None
    service.admission.limit = PLACES
    service.peers.planned(EnginePlan("cpu", {}), Model("/nowhere", ("scripted",), 0))
    try:
        service.peers.gather(engine)
    except EndpointError as error:
        service.lifecycle.fail(error.message)
        return
    service.lifecycle.ready()


def join(*_: object) -> ScriptedEngine:
    if "--broken" in sys.argv:
        raise RuntimeError("no way to the engine")
    return ScriptedEngine()


if __name__ == "__main__":
    for name in ("core", "front_ends"):  # they import vLLM
        sys.modules[f"handler.engine.vllm_api.{name}"] = ModuleType(name)
    worker.start = start  # type: ignore[attr-defined]
    follower.launch.join = join  # type: ignore[attr-defined]
    config = EndpointConfig(
        model="scripted",
        port=0,
        front_ends=FRONT_ENDS,
        enable_sessions=True,
        max_concurrent=PLACES,
        neuron_monitor=False,
    )

    def make_service(shared: Any) -> Service:
        return Service.of(config, Lifecycle(), shared)

    listener = listen(config)
    print(listener.getsockname()[1], flush=True)
    SharedServer(config, make_service, listener).run()
