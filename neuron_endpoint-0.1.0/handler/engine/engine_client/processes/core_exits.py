"""Finds the exit statuses of an engine core's processes after a start that failed.

vLLM's message is "Failed core proc(s): {}" if vLLM looks before the system has the status (v1/engine/utils.py,
`wait_for_engine_startup`). It notices the end of a process by its closed pipe, a moment earlier. The traceback's frames
still hold the process objects, which have the status by then.
"""

from __future__ import annotations

import re
from multiprocessing.process import BaseProcess
from types import TracebackType

CORES = re.compile(r"Failed core proc\(s\): \{([^}]*)\}")
STATUS = re.compile(r": (-?\d+)")
# The names of local variables, in vLLM's frames, that hold the process manager (0.11 to 0.16) or the process (0.9).
HOLDERS = ("proc_manager", "local_engine_manager", "engine_manager", "engine_process")
REAPED_WITHIN = 1.0


def core_exits(error: BaseException) -> list[int]:
    """The exit statuses, as in `multiprocessing`: a negative one is a signal. Empty if none is known."""
    reported = [int(status) for cores in CORES.findall(str(error)) for status in STATUS.findall(cores)]
    # vLLM's own shutdown ends the other processes by SIGTERM, so the statuses in its message are preferred.
    return reported or _statuses_in_frames(error.__traceback__)


def _statuses_in_frames(traceback: TracebackType | None) -> list[int]:
    found: dict[int, int] = {}
    while traceback is not None:
        for name in HOLDERS:
            holder = traceback.tb_frame.f_locals.get(name)
            alone = (holder,) if isinstance(holder, BaseProcess) else ()
            for process in getattr(holder, "processes", None) or alone:
                process.join(REAPED_WITHIN)
                if process.pid is not None and process.exitcode is not None:
                    found[process.pid] = process.exitcode
        traceback = traceback.tb_next
    return list(found.values())
