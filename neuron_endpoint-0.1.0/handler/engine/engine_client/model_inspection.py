"""Has vLLM look at a model's class in this process, not in a new one, which would import vLLM once more.

vLLM starts another Python for it, because a model's module might initialize CUDA (`_LazyRegisteredModel`,
model_executor/models/registry.py, 0.16.0). It caches the result below VLLM_CACHE_ROOT, which is empty in a new
container. That Python takes 9 s of processor time, and the start waits for it. The modules of vLLM's own models
initialize no device on a CPU or on Neuron, and the engine core imports the model's module anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from vllm.model_executor.models import registry

OWN = "vllm."


def inspect_here() -> None:
    """From now on, this process inspects vLLM's own models itself. Models of plugins are inspected as ever."""
    inspect = registry._LazyRegisteredModel.inspect_model_cls
    if getattr(inspect, "__module__", "") == __name__:
        return

    def inspect_model_cls(model: Any) -> Any:
        if not model.module_name.startswith(OWN):
            return inspect(model)
        with patch.object(registry, "_run_in_subprocess", _call):
            return inspect(model)

    registry._LazyRegisteredModel.inspect_model_cls = inspect_model_cls


def _call(function: Callable[[], Any]) -> Any:
    return function()
