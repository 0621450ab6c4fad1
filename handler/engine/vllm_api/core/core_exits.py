"""How the processes of an engine's core ended, after a start that failed.

vLLM says "Failed core proc(s): {}" when it looks before the system has the status (v1/engine/utils.py,
`wait_for_engine_startup`): a process's end is seen by its closed pipe, a moment earlier. The processes themselves are
still held by the frames that the error came through, and know it by then.
"""

from __future__ import annotations

import re
from types import TracebackType

CORES = re.compile(r"Failed core proc\(s\): \{([^}]*)\}")
STATUS = re.compile(r": (-?\d+)")
# What the frames call the one that started them (vLLM 0.11 to 0.16).
HOLDERS = ("proc_manager", "local_engine_manager", "engine_manager")
REAPED_WITHIN = 1.0


def core_exits(error: BaseException) -> list[int]:
    """Statuses as `multiprocessing` has them, a negative one being a signal; empty where nothing is known."""
    told = [int(status) for cores in CORES.findall(str(error)) for status in STATUS.findall(cores)]
    # Its own shutdown ends by SIGTERM what still ran, so what it told of itself goes before what is found now.
    return told or _held(error.__traceback__)


def _held(traceback: TracebackType | None) -> list[int]:
    found: dict[int, int] = {}
    while traceback is not None:
        for name in HOLDERS:
            holder = traceback.tb_frame.f_locals.get(name)
            for process in getattr(holder, "processes", None) or ():
                process.join(REAPED_WITHIN)
                if isinstance(process.exitcode, int):
                    found[process.pid] = process.exitcode
        traceback = traceback.tb_next
    return list(found.values())
