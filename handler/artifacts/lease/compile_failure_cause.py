"""Finds the cause of a failed compile: the configuration, which would fail again, a crash, or this machine.

An engine core that fails to compile logs an exception and exits with a status. One that is killed ends by a signal, or
with status 0 and no exception: vLLM's core turns SIGTERM into SystemExit (v1/engine/core.py, `run_engine_core`).
neuronx-cc reports F137 if it was itself killed because memory ran out (aws-neuron-sdk, "neuronx-cc error codes"); the
core then exits as with any other failure. Its errors about the configuration have codes that begin with NCC_E (the same
page). Status 70 without such a code is a crash.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from handler.artifacts.lease.compile_errors import SHORT, CompileFailed, CompileKilled
from handler.engine.core_end import CoreEnded, signal_name
from handler.start_failure import in_one_line

# The exceptions that the core printed. The last one is the cause. vLLM's client prints two that name none.
RAISED = re.compile(
    r"(?m)^.*?((?:(?<![\w.])[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)): (?!Engine core init|EngineCore enc)(\S.*)$"
)
# A resource of this machine is exhausted, broken or in use. The same compile may succeed on another machine, or here
# later. nrt_* are the Neuron runtime's calls.
EXHAUSTED = re.compile(
    r"\[?F137\]?|forcibly killed|No space left on device|Disk quota exceeded|Cannot allocate memory"
    r"|Read-only file system|MemoryError|[Aa]ddress already in use|Too many open files|\bnrt_\w+|Neuron Runtime"
    r"|Logical Neuron Core|ConnectionError|Connection refused|Max retries exceeded|name resolution"
)
# The compiler crashed: status 70, or a signal as `subprocess` or a shell (128 and more) reports it.
CRASHED = re.compile(
    r"\b(?:status|code)[ =:]*(?:70|13[479]|143|-(?:6|9|11|15))\b|died with <Signals\."
    r"|Segmentation fault|core dumped"
)
REJECTED = re.compile(r"\bNCC_E\w+")
CRASH_SIGNALS = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))
# For how many seconds such a failure is remembered. Otherwise a fleet of equal machines would try it one by one.
LONGEST = 300
# vLLM raises this for a core that has ended. It gives no further reason.
SILENT = "Engine core initialization failed"


def compile_failure(error: BaseException, statuses: Sequence[int], log: str) -> CompileFailed | CompileKilled:
    """Returns the error to raise for an engine start that failed during the compile.

    :param error: the exception of the start.
    :param statuses: the exit statuses of the core's processes. A negative one is a signal.
    :param log: the end of the core's output.
    """
    text = str(error)
    raised = RAISED.findall(log)
    # vLLM ends the remaining processes of a failed start by SIGTERM, which may reach a core that is about to exit
    # itself.
    ignored = {-signal.SIGTERM} if raised else set()
    killed = next((status for status in statuses if status < 0 and status not in ignored), None)
    if killed is not None and -killed in CRASH_SIGNALS:
        return CompileFailed(f"the engine's process was ended by {signal_name(-killed)}", log, crashed=True)
    if killed is None and not raised and statuses and not any(statuses):
        killed = -signal.SIGTERM
    if killed is not None:
        return CompileKilled(signal_name(-killed))
    reason = f"{raised[-1][0]}: {raised[-1][1]}" if raised else _without_exception(error, statuses)
    if exhausted := EXHAUSTED.search(f"{text}\n{log}"):
        said = "" if exhausted[0] in reason[:LONGEST] else f"{exhausted[0]}: "
        what = f"{said}a resource of this machine is exhausted or in use; remembered for {SHORT:.0f} s only"
        reason = f"{reason[:LONGEST]} ({what})"
        return CompileFailed(reason, log, SHORT)
    crashed = bool(CRASHED.search(f"{reason}\n{log}")) and not REJECTED.search(log)
    return CompileFailed(reason[:LONGEST], log, crashed=crashed)


def _without_exception(error: BaseException, statuses: Sequence[int]) -> str:
    """Returns the reason of a failure for which the core printed no exception."""
    if statuses and (isinstance(error, CoreEnded) or SILENT in str(error)):
        return f"the engine's process ended with status {statuses[0]} and printed no reason"
    if isinstance(error, CoreEnded):
        return str(error)
    return f"{type(error).__name__}: {in_one_line(error)}"
