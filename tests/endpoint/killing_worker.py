"""A worker extension of vLLM with a fault: one prompt crashes the engine's core, as a fault in native code does."""

from __future__ import annotations

import os
import signal
from typing import Any

from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from handler.engine.v1 import cpu_worker  # noqa: F401  its fixes are those of the product
from tests.endpoint.killing_prompt import KILLING_PROMPT

_execute = GPUModelRunner.execute_model


def execute_model(runner: Any, scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
    for request in scheduler_output.scheduled_new_reqs:
        if list(request.prompt_token_ids or ()) == KILLING_PROMPT:
            os.kill(os.getpid(), signal.SIGSEGV)
    return _execute(runner, scheduler_output, *arguments, **named)


class KillingWorker:
    """An empty extension. vLLM imports this module because of it."""


GPUModelRunner.execute_model = execute_model
