"""Watches the engine once it serves: ends every request of one that died, and gives up on one that stays stalled."""

from __future__ import annotations

import time
from collections.abc import Callable

from container.service import Service
from handler.errors import EngineFailed
from handler.startup.lifecycle import ServingStatus

INTERVAL = 0.25
# A stalled engine that comes back within this many stall times goes on; after them it is replaced.
PATIENCE = 5.0
# /ping says 500 for this long before the process ends: SageMaker must be able to see it.
LINGER = 5.0
START_LINGER = 2.0


def watch_engine(service: Service, end: Callable[[], None]) -> None:
    """Returns after a failure, when `end` has been called. Runs in a thread of its own.

    :param end: ends this process; its parent decides whether another takes its place.
    """
    while True:
        time.sleep(INTERVAL)
        status = service.lifecycle.status
        engine = service.engine
        if status.state is ServingStatus.FAILED:
            break
        if status.state is not ServingStatus.STARTING and service.models is not None:
            service.models.watch()
        if status.state is ServingStatus.STARTING or engine is None:
            continue
        if engine.dead():
            service.lifecycle.fail("the engine's process ended")
        elif engine.stalled_for() > service.config.stall * PATIENCE:
            service.lifecycle.fail(f"the engine made no progress for {engine.stalled_for():.0f} s")
    if service.engine is not None:
        service.engine.fail_requests(EngineFailed(service.lifecycle.status.reason))
    if service.models is not None:
        service.models.fail_requests()
    service.admission.wait_empty(LINGER)
    time.sleep(LINGER if service.lifecycle.served else START_LINGER)
    if service.engine is not None:
        service.engine.stop()
    if service.models is not None:
        service.models.stop()
    end()
