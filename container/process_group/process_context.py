"""What a process is told when it is started: its seat, and where it meets the others."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from container.process_group.shared_state import SharedState
from handler.engine.core_clients import CoreClient, CoreClients
from handler.neuron.engine_plan import EnginePlan

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the directory made in it is readable by its owner only


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """:param seat: 0 is the leader's; below 0: all are used, and nobody is served here.
    :param directory: private to one leader and its front ends.
    """

    board: SharedState
    seat: int
    directory: Path

    @classmethod
    def of_leader(cls, seats: int) -> ProcessContext:
        """A new leader's, with a board and a directory of its own. In the master."""
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        directory = Path(tempfile.mkdtemp(prefix="endpoint-", dir=parent))
        (directory / "metrics").mkdir()
        return cls(SharedState(seats), 0, directory)

    @property
    def socket(self) -> Path:
        """Where the leader answers what it alone can."""
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
    """What the leader tells the front ends. The engine's part comes when it is up.

    :param line, engine_args, env: the plan that the engine is started with.
    :param adapters: the engine takes some.
    :param model: the model's directory; ours to read code from where `local`.
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

    def seat(self, index: int) -> CoreClient:
        return CoreClient(CoreClients(self.inputs, self.outputs), index, self.pids)

    def write(self, post: ProcessContext) -> None:
        """For all to see at once: it is never half there."""
        part = post.directory / "handover.part"
        part.write_bytes(msgspec.json.encode(self))
        part.rename(_file(post))

    @classmethod
    def read(cls, post: ProcessContext) -> Handover | None:
        """None as long as there is none."""
        try:
            return msgspec.json.decode(_file(post).read_bytes(), type=cls)
        except FileNotFoundError:
            return None


def _file(post: ProcessContext) -> Path:
    return post.directory / "handover.json"
