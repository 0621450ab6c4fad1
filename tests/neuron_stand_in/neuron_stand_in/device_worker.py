"""vLLM's CPU worker, whatever the tensor parallel degree: one process that holds every rank."""

from __future__ import annotations

import copy
import logging
from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

from neuron_stand_in.device_platform import skip_head_division

KERNEL_BLOCK = 32  # the CPU attention kernel wants multiples of it


def on_one_cpu(vllm_config: Any) -> Any:
    """The configuration that the CPU runs: one rank, no speculation, blocks that its kernel takes.

    Blocks of max_model_len hold a whole sequence each, so that a larger one does as well.
    """
    own = copy.copy(vllm_config)
    own.parallel_config = copy.copy(vllm_config.parallel_config)
    own.parallel_config.tensor_parallel_size = own.parallel_config.pipeline_parallel_size = 1
    own.parallel_config.world_size = 1
    own.speculative_config = None
    own.cache_config = copy.copy(vllm_config.cache_config)
    if not own.cache_config.enable_prefix_caching:
        own.cache_config.block_size = -(-own.cache_config.block_size // KERNEL_BLOCK) * KERNEL_BLOCK
    return own


def show_log() -> None:
    """The stand-in's own lines on stderr: they tell how far a compile is."""
    logger = logging.getLogger("neuron_stand_in")
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


class DeviceWorker(CPUWorker):  # type: ignore[misc]  # vLLM is untyped
    """The part that both plugins share: `asked` is the configuration as the engine has it."""

    def __init__(self, vllm_config: Any, *arguments: Any, **named: Any) -> None:
        self.asked = vllm_config
        show_log()
        skip_head_division()  # vLLM checks again in this process
        super().__init__(on_one_cpu(vllm_config), *arguments, **named)
