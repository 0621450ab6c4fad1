"""The engine arguments that the plugin forces, whatever was asked for (vllm-project/vllm-neuron, platform.py)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("neuron_stand_in")

SCHEDULER = "neuron_stand_in.nxdi.scheduler.OnePrefillScheduler"
WORKER = "neuron_stand_in.nxdi.worker.NxdiStandInWorker"
TOKEN_BUDGET = 131072
DEFAULT_SEQUENCES = 32


def native_scheduler(environment: Mapping[str, str]) -> bool:
    return bool(int(environment.get("DISABLE_NEURON_CUSTOM_SCHEDULER", "0")))


def force(vllm_config: Any, environment: Mapping[str, str]) -> None:
    """Changes the configuration in place. vLLM calls this for each configuration that it builds, also for copies.

    :raises AssertionError: there is no block size where one must be given.
    """
    cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
    parallel = vllm_config.parallel_config
    if cache.num_gpu_blocks_override is not None and "_null_block_added" not in vars(cache):
        cache.num_gpu_blocks_override += 1  # vLLM takes one block for itself, the null block
        cache._null_block_added = True
    if parallel.worker_cls == "auto":
        parallel.worker_cls = WORKER
    if parallel.world_size > 1:
        parallel.distributed_executor_backend = "uni"
    if native_scheduler(environment):
        logger.warning("vLLM's own scheduler with chunked prefill is in use")
        scheduler.enable_chunked_prefill = True
        assert cache.block_size is not None, "vLLM's own scheduler needs a block_size"
        return
    scheduler.scheduler_cls = SCHEDULER
    scheduler.enable_chunked_prefill = False
    scheduler.max_num_batched_tokens = TOKEN_BUDGET
    if not scheduler.max_num_seqs:
        scheduler.max_num_seqs = DEFAULT_SEQUENCES
    if cache.enable_prefix_caching:
        assert cache.block_size is not None, "When prefix caching is enabled, block_size must be set."
    else:
        cache.block_size = vllm_config.model_config.max_model_len
