"""The other processes of the endpoint, as the routes and the start of one process see them."""

from __future__ import annotations

import time
from functools import partial

import msgspec

from container.process_group.process_context import Handover, ProcessContext
from container.process_group.shared_state import Leader, Member
from handler.engine.adapters.shared_adapters import AdapterNotes
from handler.engine.engine import Engine
from handler.errors import StartFailed
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan

POLL = 0.05
# What a front end's /ping answers, by the state of the leader.
LEADER_PROBLEMS = {
    Leader.FAILED: (500, "failed", "the engine's owner failed"),
    Leader.GONE: (500, "failed", "the engine's owner has ended"),
    Leader.DRAINING: (503, "draining", ""),
}


class Peers:
    """One process's view of the others.

    :param wanted: number of front ends, without the leader.
    """

    def __init__(self, context: ProcessContext, wanted: int) -> None:
        self.context = context
        state = self.shared_state = context.shared_state
        self.wanted = wanted
        set_changes = partial(setattr, state, "adapters")
        self.adapter_notes = AdapterNotes(context.directory, lambda: state.adapters, set_changes)
        self._handover: Handover | None = None

    @property
    def leads(self) -> bool:
        return self.context.slot == 0

    def unfinished(self, own: int) -> int:
        """Requests of all processes in the engine.

        :param own: those of this process; shared with the others.
        """
        self.shared_state.set_unfinished(self.context.slot, own)
        return self.shared_state.unfinished()

    def leader_problem(self) -> tuple[int, str, str] | None:
        """Status, state and reason for /ping; None if the leader is healthy."""
        if self.leads:
            return None
        found = LEADER_PROBLEMS.get(self.shared_state.leader)
        if found is not None:
            return found[0], found[1], self.shared_state.reason or found[2]
        return (500, "hardware", self.shared_state.reason) if self.shared_state.hardware_failed else None

    def planned(self, plan: EnginePlan, model: Model) -> None:
        """Publishes the engine's plan before the engine starts, so that the front ends can import vLLM meanwhile."""
        self._handover = Handover(plan.line, dict(plan.engine_args), dict(plan.env), model.path, bool(model.size))
        self._handover.write(self.context)

    def gather(self, engine: Engine) -> None:
        """Publishes the leader's engine, and waits until every front end serves.

        :raises StartFailed: the front ends end again and again, or the engine has ended.
        """
        planned, clients = self._handover, engine.core_addresses
        assert planned is not None, "called after `planned`"
        assert clients is not None, "called with the owner's engine"
        msgspec.structs.replace(
            planned,
            inputs=clients.inputs,
            outputs=clients.outputs,
            pids=engine.pids,
            adapters=engine.adapters is not None,
        ).write(self.context)
        self.shared_state.leader = Leader.JOIN
        while len(self.shared_state.members(Member.SERVING)) < self.wanted:
            if self.shared_state.full:
                raise StartFailed("start front ends", "They end again and again; the log has the reason.")
            if engine.dead():
                raise StartFailed("start front ends", "The engine's process ended.")
            time.sleep(POLL)

    def wait_alone(self, seconds: float) -> bool:
        """Waits until every front end has ended. False: they had not within `seconds`."""
        deadline = time.monotonic() + seconds
        while self.shared_state.members(Member.STARTING) or self.shared_state.members(Member.SERVING):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True
