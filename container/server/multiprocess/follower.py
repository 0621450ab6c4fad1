"""The life of a front end: it waits for the engine, joins it, serves, and ends when its leader ends."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable

from container.process_group.peers import POLL, Peers
from container.process_group.process_context import Handover
from container.process_group.shared_state import Leader, Member
from container.service import Service
from handler.custom_code.code_source import find_code
from handler.engine import launch
from handler.errors import EngineFailed
from handler.start_failure import in_one_line
from handler.startup.checked_plan import use_environment
from handler.startup.custom_code_loading import load_custom_code
from handler.startup.lifecycle import ServingStatus

logger = logging.getLogger(__name__)
INTERVAL = 0.1
ENDED = (Leader.FAILED, Leader.GONE)
# How long a front end reports that the engine failed, if its leader does not end.
LINGER = 30.0


def join(service: Service, peers: Peers, changed: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Joins the leader's engine, up to READY. Runs in its own thread.

    :param changed: called when this process begins to accept connections.
    :param give_up: ends this process; the master replaces it.
    """
    shared_state = peers.shared_state
    try:
        while (early := Handover.read(peers.context)) is None and shared_state.leader not in ENDED:
            time.sleep(POLL)
        if early is not None:
            use_environment(early.plan)

        while shared_state.leader is Leader.STARTING:
            time.sleep(POLL)
        if shared_state.leader in ENDED:
            return
        handover = Handover.read(peers.context)
        assert handover is not None, "the leader writes it before JOIN"
        use_environment(handover.plan)
        engine = service.engine = launch.join(handover.plan, service.config, handover.core_client(peers.context.slot))
        if handover.adapters:
            engine.follow_adapters(peers.adapter_notes)
        load_custom_code(service, find_code(service.config, handover.model) if handover.local else None)
        gc.collect()
        gc.freeze()
        shared_state.set_member(peers.context.slot, Member.SERVING)
        while shared_state.leader is Leader.JOIN:
            time.sleep(POLL)
        service.lifecycle.ready()
        changed()
        shared_state.set_unfinished(peers.context.slot, engine.unfinished())
    except BaseException as error:
        if shared_state.leader in ENDED:
            return
        logger.exception("a front end did not start: %s", in_one_line(error))
        give_up()


def follow(service: Service, peers: Peers, changed: Callable[[], None], end: Callable[[], None]) -> None:
    """Reports this process's requests to the leader, and ends with the leader. Runs in its own thread.

    :param end: ends this process.
    """
    shared_state = peers.shared_state
    while shared_state.leader not in ENDED:
        engine = service.engine
        if engine is not None:
            shared_state.set_unfinished(peers.context.slot, engine.unfinished())
            if engine.dead() and service.lifecycle.status.state is ServingStatus.READY:
                break
        time.sleep(INTERVAL)
    reason = shared_state.reason or "the engine's process ended"
    service.lifecycle.fail(reason)
    changed()
    if service.engine is not None:
        service.engine.fail_requests(EngineFailed(reason))
    deadline = time.monotonic() + LINGER
    while shared_state.leader is not Leader.GONE and time.monotonic() < deadline:
        time.sleep(POLL)
    service.admission.wait_empty(1.0)
    service.recovery.report(reason)
    end()
