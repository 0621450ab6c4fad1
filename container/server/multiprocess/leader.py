"""The leader's thread: publishes its state, and frees the requests of front ends that have ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from container.process_group.peers import Peers
from container.process_group.shared_state import Leader, Member
from container.service import Service
from handler.startup.lifecycle import ServingStatus

logger = logging.getLogger(__name__)
INTERVAL = 0.1
STATES = {
    ServingStatus.READY: Leader.READY,
    ServingStatus.DRAINING: Leader.DRAINING,
    ServingStatus.FAILED: Leader.FAILED,
}


def lead(service: Service, peers: Peers, changed: Callable[[], None]) -> None:
    """Publishes the leader's state until the process ends. Runs in its own thread.

    :param changed: called when this process begins or stops to accept connections.
    """
    shared_state, accepted = peers.shared_state, True
    while True:
        state = service.lifecycle.status.state
        if state is ServingStatus.FAILED:
            shared_state.reason = service.lifecycle.status.reason
        elif service.monitor is not None:
            problem = service.monitor.problem()
            shared_state.reason = problem or ""
            shared_state.hardware_failed = problem is not None
        shared_state.leader = STATES.get(state, shared_state.leader)
        for slot in shared_state.members(Member.GONE):
            release(service, peers, slot)
        if shared_state.full and state is ServingStatus.READY:
            service.lifecycle.fail("the front ends ended again and again")
        if accepts(service, peers) != accepted:
            accepted = not accepted
            changed()
        time.sleep(INTERVAL)


def accepts(service: Service, peers: Peers) -> bool:
    """Whether the leader accepts connections: until it is ready, and while no front end serves."""
    return service.lifecycle.status.state is not ServingStatus.READY or not peers.shared_state.members(Member.SERVING)


def release(service: Service, peers: Peers, slot: int) -> None:
    """Frees the requests of a front end that has ended, in the engine and in the shared state."""
    engine = service.engine
    freed = 0
    if engine is not None and not engine.dead() and peers.shared_state.leader in (Leader.JOIN, Leader.READY):
        try:
            freed = engine.release(slot)
        except Exception as error:
            logger.warning("the requests of a front end that ended are not freed (%s)", type(error).__name__)
            return
    peers.shared_state.clear(slot)
    if service.lifecycle.status.state is ServingStatus.READY:
        logger.warning("a front end ended; %d of its requests were freed, and another takes its place", freed)
