"""What ended a compile: the configuration, which would fail again, or this machine, which says nothing of it.

A core that fails to compile says so in its log and ends with a status; one that is killed ends by a signal. neuronx-cc
tells by F137 that it was itself killed for want of memory (aws-neuron-sdk, "neuronx-cc error codes"); the core then
ends like any other failure.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from handler.artifacts.lease.compile_errors import CompileFailed, CompileKilled
from handler.start_failure import in_one_line

# The last exception that the core printed; the lines between are the calls that led to it.
RAISED = re.compile(r"(?m)^.*?((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)): (?!Engine core init)(\S.*)$")
# A want of this machine: another, or this one in a while, may well compile the same.
WANTS = re.compile(
    r"\[?F137\]?|forcibly killed|No space left on device|Cannot allocate memory|Read-only file system|MemoryError"
)
# How long such a failure counts, in seconds: a fleet of the same machines would otherwise try it one after another.
SHORT = 300.0
LONGEST = 300
# What vLLM raises for a core that is gone; it says no more.
SILENT = "Engine core initialization failed"


def compile_failure(error: BaseException, statuses: Sequence[int], log: str) -> CompileFailed | CompileKilled:
    """The error to raise for a start of an engine that was to compile.

    :param error: what the start raised.
    :param statuses: how the core's processes ended; a negative one is a signal.
    :param log: the end of what it printed, as it was printed.
    """
    text = str(error)
    raised = RAISED.findall(log)
    # vLLM ends what is left of a failed start by SIGTERM, which may reach a core that is about to leave by itself.
    mild = {-signal.SIGTERM} if raised else set()
    killed = next((status for status in statuses if status < 0 and status not in mild), None)
    if killed is not None:
        return CompileKilled(_name(-killed))
    reason = f"{raised[-1][0]}: {raised[-1][1]}" if raised else _unsaid(error, statuses)
    wants = WANTS.search(f"{text}\n{log}")
    if wants:
        reason = f"{reason[:LONGEST]} (a want of this machine, so it is remembered for {SHORT:.0f} s only)"
        return CompileFailed(reason, log, SHORT)
    return CompileFailed(reason[:LONGEST], log)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _unsaid(error: BaseException, statuses: Sequence[int]) -> str:
    """Of a failure for which no exception was printed."""
    if statuses and SILENT in str(error):
        return f"the engine's process ended with status {statuses[0]} and did not say why"
    return f"{type(error).__name__}: {in_one_line(error)}"
