"""The way of a start, after the port is bound: bring the model, start the engine, warm it up, be ready."""

from __future__ import annotations

import gc
import logging

from container.service import Service
from handler.engine.engine import Engine
from handler.errors import EndpointError
from handler.model.source import bring

logger = logging.getLogger(__name__)


def start(service: Service) -> None:
    """Brings the service from STARTING to READY, or to FAILED with the reason. Runs in a thread of its own."""
    config, lifecycle = service.config, service.lifecycle
    try:
        lifecycle.stage("fetch model")
        model = bring(config, lifecycle.progress)
        lifecycle.progress(0, 0)
        engine = Engine.start(
            model.path, [model.name], config.engine_arguments, stall=config.stall, stage=lifecycle.stage
        )
        service.engine = engine
        lifecycle.stage("warm up")
        from handler.engine.warmup import warm_up

        warm_up(engine)
        # What the imports and the start have made lives as long as the process: without this, collecting garbage walks
        # all of it, and every token and every /ping waits a quarter of a second for that.
        gc.collect()
        gc.freeze()
        lifecycle.ready()
    except EndpointError as error:
        lifecycle.fail(error.message)
    except BaseException as error:
        # The engine's core has printed its own account; a traceback helps whoever reads the log, not a client.
        logger.exception("the start failed")
        lifecycle.fail(f"{lifecycle.status.stage}: {type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:300]
