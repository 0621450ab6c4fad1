"""The platform that vLLM loads for NEURON_STAND_IN=native."""

from __future__ import annotations

from typing import Any

from neuron_stand_in.device_platform import DevicePlatform

WORKER = "neuron_stand_in.native.worker.NativeStandInWorker"


class NativeStandInPlatform(DevicePlatform):
    """Reads `additional_config.neuron_config`; blocks are its own affair, whatever was asked for."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """:raises ValueError: a speculation other than EAGLE3."""
        if vllm_config.model_config is None:
            return
        speculative = vllm_config.speculative_config
        if speculative is not None and speculative.method != "eagle3":
            raise ValueError(f"only eagle3 speculation is supported, not {speculative.method}")
        if hasattr(vllm_config.cache_config, "user_specified_block_size"):  # vLLM 0.24.0
            vllm_config.cache_config.user_specified_block_size = False
        else:  # 0.16.0
            vllm_config.cache_config.block_size = None
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = WORKER
        cls.finish_on_cpu(vllm_config)
