"""What one rank holds in memory: NxDI's own modules, built without data at the true tensor parallel degree."""

from __future__ import annotations

import importlib
import multiprocessing
from pathlib import Path
from typing import Any

from handler.neuron.engine_plan import EnginePlan
from tests.nxdi_sources.real_classes import real_application

CACHE = "past_key_values"


def rank_bytes(plan: EnginePlan, model: Path) -> dict[str, int]:
    """The bytes of weights and of the KV cache on the first rank of a plan.

    Each plan has a process of its own, because NxD keeps its process groups in global variables.
    """
    importlib.import_module("vllm_neuron.worker.neuronx_distributed_model_loader")  # once, and not in each process
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_rank_bytes, (plan, model))


def _rank_bytes(plan: EnginePlan, model: Path) -> dict[str, int]:
    application = real_application(plan, model)
    sizes: dict[str, int] = {}
    for module in _modules(application):
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            # Weights are sharded for the first graph. The others use those of the same name.
            sizes.setdefault(name, tensor.numel() * tensor.element_size())
    cache = sum(size for name, size in sizes.items() if CACHE in name)
    return {"weights": sum(sizes.values()) - cache, "kv_cache": cache}


def _modules(application: Any) -> list[Any]:
    """The module of each graph, as ModelBuilder.shard_checkpoint builds it (NxD, trace/model_builder.py:833)."""
    import torch
    from neuronx_distributed.parallel_layers import parallel_state
    from neuronx_distributed.trace.mock_torchdist import mock_distributed
    from neuronx_distributed.utils.model_utils import init_on_device
    from neuronx_distributed_inference.models.application_base import init_custom_process_group_fn

    neuron, meta, modules = application.neuron_config, torch.device("meta"), []
    with mock_distributed(world_size=neuron.world_size), init_on_device(meta, force_custom_init_on_device=True):
        torch.distributed.init_process_group(backend="xla", rank=0, world_size=neuron.world_size)
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=neuron.tp_degree,
            pipeline_model_parallel_size=neuron.pp_degree,
            expert_model_parallel_size=neuron.ep_degree,
            skip_collective_init=True,
            lnc_size=neuron.logical_nc_config,
        )
        if application.config.num_cores_per_group > 1:
            parallel_state.initialize_kv_group(application.config.num_cores_per_group, sequential_ranks_in_group=True)
        init_custom_process_group_fn(application.config)
        for wrapper in application.models:
            instance = wrapper.get_model_instance()
            with meta:
                instance.load_module()
            modules.append(instance.module)
    return modules
