"""Watches the engine. A dead one, or one that stays stalled while it serves, ends the process and its requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from container.service import Service
from handler.errors import EngineFailed
from handler.startup.lifecycle import COMPILED, PUBLISH, ServingStatus

INTERVAL = 0.25
# A stalled engine may recover within this many stall times (the setting). Then it is replaced.
STALL_TIMES = 5.0
# Seconds in which a start that needs the engine says itself why it has ended, with what the core printed.
EXPLAINED_WITHIN = 5.0
# Seconds that clients have to read the errors of their requests.
READ = 5.0
# Seconds for which /ping answers 500 before the last process ends, so that SageMaker sees it. If another one follows,
# the acceptor answers 503 meanwhile.
LINGER = 5.0
START_LINGER = 2.0


def watch_engine(service: Service, end: Callable[[], None], publish: Callable[[], None]) -> None:
    """Watches until the engine fails, then ends the process. Runs in its own thread.

    :param publish: says what /ping answers, and that this process makes progress. Called every `INTERVAL` seconds.
    :param end: ends this process. Its parent decides whether to start another.
    """
    died: float | None = None
    while True:
        time.sleep(INTERVAL)
        publish()
        status = service.lifecycle.status
        engine = service.engine
        if status.state is ServingStatus.FAILED:
            break
        if status.state is not ServingStatus.STARTING and service.models is not None:
            service.models.watch()
        if engine is None or (status.state is ServingStatus.STARTING and not engine.dead()):
            died = None
        elif status.state is ServingStatus.STARTING:
            died = died or time.monotonic()
            if status.stage not in (PUBLISH, COMPILED) and time.monotonic() - died >= EXPLAINED_WITHIN:
                service.lifecycle.fail(f"{status.stage}: the engine's process {engine.ended()}")
        elif engine.dead():
            service.lifecycle.fail(f"the engine's process {engine.ended()}")
        elif engine.stalled_for() > service.config.stall * STALL_TIMES:
            service.lifecycle.fail(f"the engine made no progress for {engine.stalled_for():.0f} s")
    if service.engine is not None:
        service.engine.fail_requests(EngineFailed(service.lifecycle.status.reason))
    if service.models is not None:
        service.models.fail_requests()
    service.admission.wait_empty(READ)
    service.recovery.report(service.lifecycle.status.reason)
    if not service.lifecycle.served:
        time.sleep(START_LINGER)
    elif not service.recovery.successor():
        time.sleep(LINGER)
    if service.engine is not None:
        service.engine.stop()
    if service.models is not None:
        service.models.stop()
    end()
