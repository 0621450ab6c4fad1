"""A platform that changes what optimum-neuron's changes, for vLLM's own configuration. No engine starts on it.

Source: optimum-neuron 0.4.5, optimum/neuron/vllm/platform.py.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms.interface import UnspecifiedPlatform


class OptimumConfigurationPlatform(UnspecifiedPlatform):
    device_name = "neuron"
    device_type = "cpu"

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "optimum.neuron.vllm.worker.OptimumNeuronWorker"
        if parallel.world_size > 1:
            parallel.distributed_executor_backend = "uni"
        if cache:
            cache.enable_prefix_caching = False
        if cache and vllm_config.model_config:
            cache.block_size = vllm_config.model_config.max_model_len

    @classmethod
    def is_async_output_supported(cls, enforce_eager: bool | None) -> bool:
        return False

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False
