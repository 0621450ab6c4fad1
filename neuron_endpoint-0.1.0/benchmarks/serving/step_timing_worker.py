"""vLLM's CPU worker with a record of each engine step: it shows what the time between two tokens consists of.

`--worker-cls benchmarks.serving.step_timing_worker.StepWorker` on either side (`python -m benchmarks steps`). The steps
are written when the engine has no requests, so never between two steps of a request. For vLLM 0.16.
"""

from __future__ import annotations

import os
import time
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.cpu_worker import CPUWorker

from benchmarks.serving.step_times import FILE, EngineStep


class StepWorker(CPUWorker):  # type: ignore[misc]  # vLLM is untyped
    def init_device(self) -> None:
        super().init_device()
        self._steps: list[EngineStep] = []
        self._began = self._computed = 0
        self._output: SchedulerOutput | None = None
        self._file = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        if not scheduler_output.num_scheduled_tokens:
            self._write()
        self._output, self._began = scheduler_output, time.monotonic_ns()
        result = super().execute_model(scheduler_output)
        self._computed = time.monotonic_ns()
        return result

    def sample_tokens(self, grammar_output: Any) -> Any:
        result = super().sample_tokens(grammar_output)
        done, output = time.monotonic_ns(), self._output
        assert output is not None, "a step is computed before it is sampled"
        new, served = len(output.scheduled_new_reqs), len(output.num_scheduled_tokens)
        self._steps.append(
            EngineStep(self._began, self._computed, done, new, served, output.total_num_scheduled_tokens)
        )
        return result

    def _write(self) -> None:
        os.write(self._file, "".join(step.line() for step in self._steps).encode())
        self._steps.clear()
