"""What the plugin's worker does with a plan before it compiles: the plugin's own functions and NxDI's own classes."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from handler.neuron.engine_plan import EnginePlan


def real_application(plan: EnginePlan, model: Path) -> Any:
    """NxDI's application of a plan (plugin 0.5.0, worker/neuronx_distributed_model_loader.py, get_neuron_model).

    :param model: a directory with a config.json.
    :raises Exception: what the plugin or NxDI raises of the plan.
    """
    import vllm_neuron.worker.neuronx_distributed_model_loader as loader
    from neuronx_distributed_inference.utils.hf_adapter import load_pretrained_config
    from transformers import AutoConfig

    hf_config = AutoConfig.from_pretrained(str(model))
    args: dict[str, Any] = copy.deepcopy(dict(plan.engine_args))
    additional: dict[str, Any] = args.get("additional_config") or {}
    override: dict[str, Any] = additional.get("override_neuron_config") or {}
    engine = _engine(args, additional, hf_config)
    lora = _lora(args, override) if args.get("enable_lora") else None
    keys = loader._get_default_neuron_config(
        engine.model_config, engine.cache_config, engine.parallel_config, engine.scheduler_config, lora, engine.draft
    )
    override = loader._validate_override_neuron_config(override, engine.model_config)
    keys = loader._get_neuron_config_after_override(keys, override)
    if keys.get("is_block_kv_layout"):
        keys = loader._handle_pa_num_blocks(engine.cache_config, keys, override)
    keys = loader._validate_neuron_config(engine.cache_config, engine.scheduler_config, engine.model_config, keys)
    architecture = hf_config.architectures[0]
    cls = loader._get_neuron_model_cls(architecture)
    build, load = cls.get_neuron_config_cls(), load_pretrained_config(str(model))
    if architecture in loader.NEURON_MULTI_MODAL_MODELS:
        loader._validate_image_to_text_override_neuron_config(override)
        text, vision = (
            build(**{**copy.deepcopy(keys), **override.get(f"{part}_neuron_config", {})}) for part in ("text", "vision")
        )
        config = cls.get_config_cls()(text_neuron_config=text, vision_neuron_config=vision, load_config=load)
    else:
        draft_overrides = keys.pop("draft_overrides", None)
        config = cls.get_config_cls()(build(**keys), load_config=load)
        if config.neuron_config.enable_fused_speculation:
            assert engine.draft is not None, "Must pass speculative_config"
            init = loader.NeuronModelBase._init_fused_spec_config
            init(SimpleNamespace(), config, keys, cls, engine.draft, draft_overrides)
    return cls(str(model), config)


def local_name(model: str) -> str:
    """The directory that `published_models` has for a model in S3."""
    return model.rpartition("/")[2] if model.startswith("s3:") else model


def _engine(args: dict[str, Any], additional: dict[str, Any], hf_config: Any) -> SimpleNamespace:
    """vLLM's configuration, as the plugin's platform changes it."""
    import torch

    length, prefix = args["max_model_len"], bool(args.get("enable_prefix_caching"))
    dtype = str(args.get("dtype") or "auto").removeprefix("torch.")
    given = getattr(hf_config, "torch_dtype", None) or torch.bfloat16
    blocks, draft = args.get("num_gpu_blocks_override"), args.get("speculative_config")
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype=given if dtype == "auto" else getattr(torch, dtype),
            max_model_len=length,
            max_prompt_length=additional.get("max_prompt_length"),
        ),
        cache_config=SimpleNamespace(
            block_size=args.get("block_size") if prefix else length,
            num_gpu_blocks_override=None if blocks is None else blocks + 1,
            enable_prefix_caching=prefix,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=args.get("tensor_parallel_size", 1)),
        scheduler_config=SimpleNamespace(
            max_num_seqs=args["max_num_seqs"], enable_chunked_prefill=False, max_num_batched_tokens=131072
        ),
        draft=SimpleNamespace(**{**draft, "model": local_name(draft["model"])}) if draft else None,
    )


def _lora(args: dict[str, Any], override: dict[str, Any]) -> Any:
    """As worker/neuronx_distributed_model_runner.py, _get_nxdi_lora_config, with vLLM's defaults."""
    from neuronx_distributed_inference.modules.lora_serving import LoraServingConfig

    most = args.get("max_loras", 1)
    return LoraServingConfig(
        max_loras=most,
        max_lora_rank=args.get("max_lora_rank", 16),
        target_modules=override.pop("target_modules", None),
        lora_ckpt_json=override.pop("lora_ckpt_json", None),
        max_cpu_loras=args.get("max_cpu_loras", most),
        lora_memory_transpose=False,
        dynamic_multi_lora=True,
        batch_size=args["max_num_seqs"],
        base_model_quantized=override.get("quantized", False),
    )
