"""What a process of several knows of the others, as the routes and the start see it."""

from __future__ import annotations

import time

from container.process_group.process_context import Handover, ProcessContext
from container.process_group.shared_state import Leader, Member
from handler.engine.adapters.shared_adapters import AdapterNotes
from handler.engine.engine import Engine
from handler.errors import StartFailed
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan

POLL = 0.05
# /ping of a front end, by what is known of the leader.
TROUBLES = {
    Leader.FAILED: (500, "failed", "the engine's owner failed"),
    Leader.GONE: (500, "failed", "the engine's owner has ended"),
    Leader.DRAINING: (503, "draining", ""),
}


class Peers:
    """One for each process.

    :param wanted: front ends, the leader not counted.
    """

    def __init__(self, post: ProcessContext, wanted: int) -> None:
        self.post = post
        self.board = post.board
        self.wanted = wanted
        self.adapter_notes = AdapterNotes(post.directory, lambda: post.board.adapters, self._adapters_changed)
        self._handover: Handover | None = None

    @property
    def leads(self) -> bool:
        return self.post.seat == 0

    def _adapters_changed(self, change: int) -> None:
        self.board.adapters = change

    def unfinished(self, own: int) -> int:
        """Requests in the engine, of all processes. Notes down this one's."""
        self.board.note_unfinished(self.post.seat, own)
        return self.board.unfinished()

    def trouble(self) -> tuple[int, str, str] | None:
        """Status, state and reason that /ping is to tell; None where the leader is well."""
        if self.leads:
            return None
        found = TROUBLES.get(self.board.leader)
        if found is not None:
            return found[0], found[1], self.board.reason or found[2]
        return (500, "hardware", self.board.reason) if self.board.trouble else None

    def planned(self, plan: EnginePlan, model: Model) -> None:
        """The leader is about to start an engine: the front ends may import vLLM meanwhile."""
        self._handover = Handover(plan.line, dict(plan.engine_args), dict(plan.env), model.path, bool(model.size))
        self._handover.write(self.post)

    def gather(self, engine: Engine) -> None:
        """The leader's engine is up: returns when every front end is ready for requests.

        :raises StartFailed: they end again and again.
        """
        planned, addresses = self._handover, engine.core_addresses
        assert planned is not None, "called after `planned`"
        assert addresses is not None, "called with the owner's engine"
        Handover(
            planned.line,
            planned.engine_args,
            planned.env,
            planned.model,
            planned.local,
            addresses.inputs,
            addresses.outputs,
            engine.pids,
            engine.adapters is not None,
        ).write(self.post)
        self.board.leader = Leader.JOIN
        while len(self.board.members(Member.SERVING)) < self.wanted:
            if self.board.full:
                raise StartFailed("start front ends", "They end again and again; the log says why.")
            if engine.dead():
                raise StartFailed("start front ends", "The engine's process ended.")
            time.sleep(POLL)

    def wait_alone(self, seconds: float) -> bool:
        """True once every front end has ended; False when the time is up."""
        until = time.monotonic() + seconds
        while self.board.members(Member.STARTING) or self.board.members(Member.SERVING):
            if time.monotonic() > until:
                return False
            time.sleep(POLL)
        return True
