"""A front end's life: waits for the engine, joins it, serves, and goes when its leader does."""

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
# How long a front end goes on to say that the engine failed, where its leader does not end.
LINGER = 30.0


def join(service: Service, peers: Peers, changed: Callable[[], None], give_up: Callable[[], None]) -> None:
    """From nothing to READY. In a thread of its own.

    :param changed: called when connections are to be accepted here.
    :param give_up: ends this process; another takes its place.
    """
    board = peers.board
    try:
        while (planned := Handover.read(peers.post)) is None and board.leader not in ENDED:
            time.sleep(POLL)
        if planned is not None:
            use_environment(planned.plan)

        while board.leader in (Leader.STARTING,):
            time.sleep(POLL)
        if board.leader in ENDED:
            return
        handover = Handover.read(peers.post)
        assert handover is not None, "written before the leader asks to join"
        use_environment(handover.plan)
        engine = service.engine = launch.join(handover.plan, service.config, handover.seat(peers.post.seat))
        if handover.adapters:
            engine.follow_adapters(peers.adapter_notes)
        load_custom_code(service, find_code(service.config, handover.model) if handover.local else None)
        gc.collect()
        gc.freeze()
        board.set_member(peers.post.seat, Member.SERVING)
        while board.leader is Leader.JOIN:
            time.sleep(POLL)
        service.lifecycle.ready()
        changed()
        board.note_unfinished(peers.post.seat, engine.unfinished())
    except BaseException as error:
        if board.leader in ENDED:
            return
        logger.exception("a front end did not start: %s", in_one_line(error))
        give_up()


def follow(service: Service, peers: Peers, changed: Callable[[], None], end: Callable[[], None]) -> None:
    """Until the leader is gone: counts what is in the engine, and fails with the leader. In a thread of its own.

    :param end: ends this process.
    """
    board = peers.board
    while board.leader not in ENDED:
        engine = service.engine
        if engine is not None:
            board.note_unfinished(peers.post.seat, engine.unfinished())
            if engine.dead() and service.lifecycle.status.state is ServingStatus.READY:
                break
        time.sleep(INTERVAL)
    reason = board.reason or "the engine's process ended"
    service.lifecycle.fail(reason)
    changed()
    if service.engine is not None:
        service.engine.fail_requests(EngineFailed(reason))
    until = time.monotonic() + LINGER
    while board.leader is not Leader.GONE and time.monotonic() < until:
        time.sleep(POLL)
    service.admission.wait_empty(1.0)
    end()
