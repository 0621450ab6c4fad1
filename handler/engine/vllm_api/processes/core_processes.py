"""Finds the processes of an engine: its cores and their workers.

The CPU engine of 0.13.0 and 0.16.0 computes in its core. That of 0.24.0 has a worker process below the core, and so has
every tensor parallel engine. With the core's pid alone, a long step would look like a stall, and the workers would
survive the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psutil  # vLLM brings it

# How vLLM names its processes: VLLM::EngineCore, VLLM::Worker_TP0 (vllm/utils/system_utils.py, set_process_title).
TITLE = "VLLM::"


def engine_pids(engine: Any) -> tuple[int, ...]:
    """The cores' pids, then the workers'. Python's resource tracker is not included: it cleans up after the others."""
    manager = engine.engine_core.resources.engine_manager
    cores = [process.pid for process in getattr(manager, "processes", ()) if process.pid]
    return (*cores, *_workers(cores))


def exit_statuses(engine: Any) -> list[int]:
    """The exit statuses of the cores that have ended, as in `multiprocessing`: a negative one is a signal."""
    manager = engine.engine_core.resources.engine_manager
    statuses = [process.exitcode for process in getattr(manager, "processes", ())]
    return [status for status in statuses if status is not None]


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
