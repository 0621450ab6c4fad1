"""How an engine's processes ended. A status is that of `multiprocessing`: a negative one is a signal."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import wait
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, TypeVar

from handler.engine.event_loop import LoopThread

Result = TypeVar("Result")

INTERVAL = 0.5
# Seconds in which vLLM itself may say why its core has ended.
GRACE = 5.0
CORES = re.compile(r"Failed core proc\(s\): \{([^}]*)\}")
STATUS = re.compile(r": (-?\d+)")
# The names of local variables, in vLLM's frames, that hold the process manager (0.11 to 0.16) or the process (0.9).
HOLDERS = ("proc_manager", "local_engine_manager", "engine_manager", "engine_process")
REAPED_WITHIN = 1.0
POLL = 0.02


class CoreEnded(Exception):
    """An engine's core has ended, and with it what waited for it.

    :param statuses: of its processes; empty if they are not known.
    """

    def __init__(self, statuses: Sequence[int]) -> None:
        self.statuses = list(statuses)
        super().__init__(f"the engine's process {described(statuses, 0)}")


def from_outside(statuses: Sequence[int], oom_kills: int) -> bool:
    """Whether somebody has killed it. No core does that to itself, but for its memory. Arguments as `described`."""
    return -signal.SIGKILL in statuses and oom_kills <= 0


def described(statuses: Sequence[int], oom_kills: int) -> str:
    """How it ended, for "the engine's process ...".

    :param statuses: of its processes.
    :param oom_kills: how many processes the kernel has ended for memory since the engine started.
    """
    number = next((-status for status in statuses if status < 0), None)
    if oom_kills > 0 and number in (None, signal.SIGKILL):
        return "was ended by the kernel, because memory ran out"
    if number is None:
        return "ended"
    likely = ", often because memory ran out" if number == signal.SIGKILL else ""
    return f"was ended by {signal_name(number)}{likely}"


def signal_name(number: int) -> str:
    """The name of a signal. Most of the real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def started(loop: LoopThread, start: Coroutine[Any, Any, Result]) -> Result:
    """Runs what starts an engine, as long as the processes that it starts live.

    vLLM looks after its core until that says that it is ready. Then it waits up to ten minutes for a message that a
    core which was killed in that moment never sends (0.16.0 to 0.29.0, v1/engine/core_client.py, MPClient.__init__).
    The thread that waits cannot be ended, but nobody has to wait for it.

    :raises CoreEnded: one of them has ended, and vLLM itself has not said so.
    """
    before = set(active_children())
    processes = set(before)
    engine = loop.spawn(start)
    while not wait((engine,), INTERVAL).done:
        statuses = [process.exitcode for process in processes - before if process.exitcode is not None]
        processes.update(active_children())
        if statuses and not wait((engine,), GRACE).done:
            engine.cancel()
            raise CoreEnded(statuses)
    return engine.result()


def reaped(exit_statuses: Callable[[], list[int]]) -> list[int]:
    """The statuses of a core that has ended. The system has them a moment after its pipes are closed."""
    deadline = time.monotonic() + REAPED_WITHIN
    while not (statuses := exit_statuses()) and time.monotonic() < deadline:
        time.sleep(POLL)
    return statuses


def core_exits(error: BaseException) -> list[int]:
    """The exit statuses of a core's processes after a start that failed. Empty if none is known.

    vLLM's message is "Failed core proc(s): {}" if vLLM looks before the system has the status (v1/engine/utils.py,
    `wait_for_engine_startup`). It notices the end of a process by its closed pipe, a moment earlier. The traceback's
    frames still hold the process objects, which have the status by then.
    """
    if isinstance(error, CoreEnded):
        return error.statuses
    reported = [int(status) for cores in CORES.findall(str(error)) for status in STATUS.findall(cores)]
    # vLLM's own shutdown ends the other processes by SIGTERM, so the statuses in its message are preferred.
    return reported or _statuses_in_frames(error.__traceback__)


def _statuses_in_frames(traceback: TracebackType | None) -> list[int]:
    statuses: dict[int, int] = {}
    while traceback is not None:
        for name in HOLDERS:
            holder = traceback.tb_frame.f_locals.get(name)
            alone = (holder,) if isinstance(holder, BaseProcess) else ()
            for process in getattr(holder, "processes", None) or alone:
                process.join(REAPED_WITHIN)
                if process.pid is not None and process.exitcode is not None:
                    statuses[process.pid] = process.exitcode
        traceback = traceback.tb_next
    return list(statuses.values())
