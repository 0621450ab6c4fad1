"""Explains why an engine did not start.

The engine core prints the reason of a failed start to its log. Its parent process only gets "Engine core initialization
failed. See root cause above". /ping's reason and SageMaker's failure reason must give the real one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from handler.artifacts.lease.compile_errors import CompileFailed, CompileKilled
from handler.artifacts.lease.compile_failure_cause import compile_failure
from handler.engine import core_end
from handler.engine.engine import Engine
from handler.engine.engine_client.processes.core_exits import core_exits
from handler.errors import EndpointError, StartFailed
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware import host_memory
from handler.start_failure import fix_for
from handler.startup.output_tail import output_tail

StartEngine = Callable[[EnginePlan], Engine]


@contextmanager
def diagnosed_start() -> Iterator[None]:
    """Start an engine within it. A failure becomes an error with the core's last error or signal.

    :raises CompileFailed, CompileKilled: the start failed. An EndpointError stays as it is.
    """
    try:
        with output_tail() as output:
            yield
    except EndpointError:
        raise
    except Exception as error:
        raise compile_failure(error, core_exits(error), output.text()) from error


@contextmanager
def explained_start_failure() -> Iterator[None]:
    """Start an engine within it. A failure becomes StartFailed, with the core's last error or signal, and the fix."""
    kills = host_memory.oom_kills()
    try:
        with diagnosed_start():
            yield
    except CompileKilled as failure:
        number = getattr(signal.Signals, failure.signal, signal.SIGKILL)
        why = f"the engine's process {core_end.described([-number], host_memory.oom_kills() - kills)}"
        raise StartFailed("start engine", f"{why}. Use an instance with more memory.") from failure
    except CompileFailed as failure:
        raise StartFailed("start engine", f"{failure.reason}. {fix_for(failure.reason)}") from failure
