"""The context of one process among several: its slot, the shared state and the shared directory."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from container.process_group.shared_state import SharedState
from handler.engine.core_clients import CoreAddresses, CoreClient
from handler.neuron.engine_plan import EnginePlan

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the directory made in it is readable by its owner only


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """The context that the master gives to a process.

    :param slot: 0 for the leader; below 0: none was left, and this process serves nobody.
    :param directory: shared by one leader and its front ends only.
    """

    shared_state: SharedState
    slot: int
    directory: Path

    @classmethod
    def of_leader(cls, slots: int) -> ProcessContext:
        """The context of a new leader, with a new shared state and a new directory. Called in the master."""
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        directory = Path(tempfile.mkdtemp(prefix="endpoint-", dir=parent))
        (directory / "metrics").mkdir()
        return cls(SharedState(slots), 0, directory)

    @property
    def socket(self) -> Path:
        """The Unix socket on which the leader answers its front ends."""
        return self.directory / "leader.sock"

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics"

    @property
    def sessions(self) -> Path:
        return self.directory / "sessions.sqlite"

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Handover(msgspec.Struct, frozen=True):
    """What the front ends need to join the leader's engine. The last four fields are known when the engine is up.

    :param line, engine_args, env: the engine's plan.
    :param model: the model's directory. Where `local`, custom code may be read from it.
    :param adapters: the engine serves adapters.
    """

    line: str
    engine_args: dict[str, Any]
    env: dict[str, str]
    model: str
    local: bool
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    adapters: bool = False

    @property
    def plan(self) -> EnginePlan:
        return EnginePlan(self.line, self.engine_args, self.env)

    def core_client(self, index: int) -> CoreClient:
        """The connection of one front end to the engine's core."""
        return CoreClient(CoreAddresses(self.inputs, self.outputs), index, self.pids)

    def write(self, context: ProcessContext) -> None:
        """Publishes the handover by a rename, so that nobody reads a part of it."""
        part = context.directory / "handover.part"
        part.write_bytes(msgspec.json.encode(self))
        part.rename(_file(context))

    @classmethod
    def read(cls, context: ProcessContext) -> Handover | None:
        """The handover; None before the leader has written it."""
        try:
            return msgspec.json.decode(_file(context).read_bytes(), type=cls)
        except FileNotFoundError:
            return None


def _file(context: ProcessContext) -> Path:
    return context.directory / "handover.json"
