"""vLLM's CPU platform, which says that it is something else until the model runs."""

from __future__ import annotations

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import PlatformEnum

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


class DevicePlatform(CpuPlatform):  # type: ignore[misc]  # vLLM is untyped
    """An out-of-tree platform to the engine, so that vLLM takes the defaults it takes with the plugin. In the process
    that runs the model, once the worker is made, it is the CPU again, so that the CPU's kernels run."""

    _enum = PlatformEnum.OOT
    device_control_env_var = "NEURON_RT_VISIBLE_CORES"
    runs_the_model = False

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """vLLM calls this before it builds a configuration."""
        skip_head_division()

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "neuron"

    def is_cpu(self) -> bool:
        return type(self).runs_the_model

    def is_out_of_tree(self) -> bool:
        return not type(self).runs_the_model

    @classmethod
    def finish_on_cpu(cls, vllm_config: Any) -> None:
        """What the CPU platform sets, and one process whatever the tensor parallel degree. It compiles nothing.

        vLLM forks the core, as with the plugins. On a CPU it would spawn it, which imports vLLM once more.
        """
        from vllm.config import CompilationMode  # it imports the platform itself

        vllm_config.compilation_config.mode = CompilationMode.NONE
        method = os.environ.get(METHOD, "fork")
        CpuPlatform.check_and_update_config(vllm_config)
        os.environ[METHOD] = method
        if vllm_config.parallel_config.world_size > 1:
            vllm_config.parallel_config.distributed_executor_backend = "uni"
        os.environ["LOCAL_WORLD_SIZE"] = "1"


def skip_head_division() -> None:
    """Any tensor parallel degree goes: NxDI pads or replicates heads (vllm-project/vllm-neuron, platform.py)."""
    from vllm.config import ModelConfig

    ModelConfig.verify_with_parallel_config = lambda self, parallel_config: None
