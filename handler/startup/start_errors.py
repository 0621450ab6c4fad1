"""A start of an engine that fails with the reason, wherever it came from.

vLLM's core says why it could not start in its log only; its parent learns "Engine core initialization failed. See root
cause above". Who reads /ping's reason or SageMaker's failure reason has nothing above.
"""

from __future__ import annotations

from collections.abc import Callable

from handler.artifacts.lease.compile_errors import CompileKilled
from handler.artifacts.lease.compile_failure import compile_failure
from handler.engine.engine import Engine
from handler.engine.vllm_api.core.core_exits import core_exits
from handler.errors import EndpointError, StartFailed
from handler.neuron.engine_plan import EnginePlan
from handler.start_failure import fix_for
from handler.startup.output_tail import output_tail

StartEngine = Callable[[EnginePlan], Engine]


def with_reason(start: StartEngine) -> StartEngine:
    """`start`, whose failures are StartFailed: what the core printed last, or what ended it, and the fix."""

    def started(plan: EnginePlan) -> Engine:
        with output_tail() as output:
            try:
                return start(plan)
            except EndpointError:
                raise
            except Exception as error:
                failure = compile_failure(error, core_exits(error), output.text())
                if isinstance(failure, CompileKilled):
                    why = f"the engine's process was ended by {failure.signal}, often because memory ran out"
                    raise StartFailed("start engine", f"{why}. Use an instance with more memory.") from error
                raise StartFailed("start engine", f"{failure.reason}. {fix_for(failure.reason)}") from error

    return started
