"""What the leader does while it serves: tells the others how it is, and frees what those that ended have held."""

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
    """Runs until the process ends, in a thread of its own.

    :param changed: called when connections are to be accepted here, or no more.
    """
    board, accepted = peers.board, True
    while True:
        state = service.lifecycle.status.state
        if state is ServingStatus.FAILED:
            board.reason = service.lifecycle.status.reason
        elif service.monitor is not None:
            trouble = service.monitor.trouble()
            board.reason = trouble or ""
            board.trouble = trouble is not None
        board.leader = STATES.get(state, board.leader)
        for seat in board.members(Member.GONE):
            release(service, peers, seat)
        if board.full and state is ServingStatus.READY:
            service.lifecycle.fail("the front ends ended again and again")
        if accepts(service, peers) != accepted:
            accepted = not accepted
            changed()
        time.sleep(INTERVAL)


def accepts(service: Service, peers: Peers) -> bool:
    """The leader answers new connections itself until it is ready, and whenever nobody else does."""
    return service.lifecycle.status.state is not ServingStatus.READY or not peers.board.members(Member.SERVING)


def release(service: Service, peers: Peers, seat: int) -> None:
    """A front end has ended: its requests leave the engine, and its places are free."""
    engine = service.engine
    freed = 0
    if engine is not None and not engine.dead() and peers.board.leader in (Leader.JOIN, Leader.READY):
        try:
            freed = engine.release(seat)
        except Exception as error:
            logger.warning("the requests of a front end that ended are not freed (%s)", type(error).__name__)
            return
    peers.board.clear(seat)
    if service.lifecycle.status.state is ServingStatus.READY:
        logger.warning("a front end ended; %d of its requests were freed, and another takes its place", freed)
