"""The processes of an engine: its cores and their workers.

A core may compute in its own process, or in a worker below it: the CPU engine since 0.24.0, and every tensor parallel
engine. With the core's pid alone, a long step would look like a stall, and the workers would survive the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import active_children
from multiprocessing.process import BaseProcess

import psutil  # vLLM brings it

# How vLLM names its processes: VLLM::EngineCore, VLLM::Worker_TP0 (vllm/utils/system_utils.py, set_process_title).
TITLE = "VLLM::"
# The process that balances the load of several cores.
COORDINATOR = "Coordinator"


@dataclass(frozen=True, slots=True)
class EngineProcesses:
    """The cores that this process has started."""

    cores: tuple[BaseProcess, ...] = ()

    @classmethod
    def since(cls, before: Iterable[BaseProcess]) -> EngineProcesses:
        """The cores that were started since `multiprocessing.active_children` returned `before`."""
        started = set(active_children()) - set(before)
        cores = (process for process in started if COORDINATOR not in process.name)
        return cls(tuple(sorted(cores, key=lambda process: process.pid or 0)))

    def pids(self) -> tuple[int, ...]:
        """The cores' pids, then the workers'. Python's resource tracker is not included: it cleans up after others."""
        cores = [process.pid for process in self.cores if process.pid]
        return (*cores, *_workers(cores))

    def exit_statuses(self) -> list[int]:
        """Of the cores that have ended, as in `multiprocessing`: a negative one is a signal."""
        return [process.exitcode for process in self.cores if process.exitcode is not None]


def _workers(cores: Iterable[int]) -> Iterable[int]:
    for core in cores:
        try:
            below = psutil.Process(core).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        for process in below:
            try:
                title = process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if title and title[0].startswith(TITLE):
                yield process.pid
