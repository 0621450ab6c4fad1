"""`Line`: a generation of vLLM and Neuron with its features and its spelling of a plan; what requests a feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.lines.plan_draft import PlanDraft


class Feature(StrEnum):
    """A feature. The value is the name that messages use."""

    TENSOR_PARALLEL = "tensor parallelism"
    LNC = "a logical NeuronCore configuration"
    CONTINUOUS_BATCHING = "continuous batching"
    CONTEXT_BATCH = "a context batch size"
    CONTEXT_LENGTH = "a separate limit on the prompt's length"
    BUCKETING = "automatic bucketing"
    CONTEXT_BUCKETS = "context buckets"
    TOKEN_BUCKETS = "token buckets"
    PREFIX_CACHING = "prefix caching"
    BLOCKS = "KV cache blocks"
    CHUNKED_PREFILL = "chunked prefill"
    INT8 = "INT8 weights"
    FP8 = "FP8 weights"
    MXFP = "MXFP4 or MXFP8 weights"
    QUANTIZED_CHECKPOINT = "a separate quantized checkpoint"
    UNQUANTIZED_MODULES = "modules that are not quantized"
    KV_CACHE_QUANT = "KV cache quantization"
    ON_DEVICE_SAMPLING = "on-device sampling"
    CPU_SAMPLING = "CPU sampling"
    GLOBAL_TOPK = "a global top_k"
    DRAFT_MODEL = "draft-model speculation"
    EAGLE = "EAGLE speculation"
    EAGLE3 = "EAGLE3 speculation"
    MEDUSA = "Medusa speculation"
    FUSED_SPECULATION = "fused speculation"
    UNFUSED_SPECULATION = "unfused speculation"
    KERNELS = "kernel switches"
    SEQUENCE_PARALLEL = "sequence parallelism"
    ASYNC_MODE = "async mode"
    SKIP_WARMUP = "skipping the warm-up"
    SHARDED_CHECKPOINT = "sharded checkpoints"
    LORA = "LoRA adapters"
    MULTIMODAL = "multimodal configurations"
    DISAGGREGATION = "disaggregated prefill and decode"
    CONTEXT_PARALLEL = "decode context parallelism"
    NODES = "several nodes"
    RAW = "a raw NeuronConfig"


FeatureRule = Callable[[object], Feature | None]


def _set(feature: Feature) -> FeatureRule:
    return lambda value: None if value is None or value is False or value == () or value == {} else feature


def _either(on: Feature, off: Feature) -> FeatureRule:
    return lambda value: None if value is None else on if value else off


QUANTIZATIONS: Final = {
    "int8": Feature.INT8,
    "s8": Feature.INT8,
    "fp8": Feature.FP8,
    "f8e4m3": Feature.FP8,
    "mxfp4": Feature.MXFP,
    "mxfp8": Feature.MXFP,
}


def _quantization(value: object) -> Feature | None:
    """vLLM's own names (awq, neuron_quant ...) are not features: each line decides about them."""
    return QUANTIZATIONS.get(value.lower()) if isinstance(value, str) else None


def _nodes(value: object) -> Feature | None:
    return Feature.NODES if isinstance(value, int) and value > 1 else None


METHODS: Final = {
    "draft_model": Feature.DRAFT_MODEL,
    "eagle": Feature.EAGLE,
    "eagle3": Feature.EAGLE3,
    "medusa": Feature.MEDUSA,
}

RULES: Final[dict[str, FeatureRule]] = {
    "tensor_parallel_size": _set(Feature.TENSOR_PARALLEL),
    "logical_nc_config": _set(Feature.LNC),
    "max_num_seqs": _set(Feature.CONTINUOUS_BATCHING),
    "ctx_batch_size": _set(Feature.CONTEXT_BATCH),
    "max_context_length": _set(Feature.CONTEXT_LENGTH),
    "enable_bucketing": _set(Feature.BUCKETING),
    "context_encoding_buckets": _set(Feature.CONTEXT_BUCKETS),
    "token_generation_buckets": _set(Feature.TOKEN_BUCKETS),
    "enable_prefix_caching": _set(Feature.PREFIX_CACHING),
    "enable_chunked_prefill": _set(Feature.CHUNKED_PREFILL),
    "num_gpu_blocks_override": _set(Feature.BLOCKS),
    "quantization": _quantization,
    "quantization_type": _set(Feature.QUANTIZED_CHECKPOINT),
    "quantized_checkpoints_path": _set(Feature.QUANTIZED_CHECKPOINT),
    "modules_to_not_convert": _set(Feature.UNQUANTIZED_MODULES),
    "kv_cache_quant": _set(Feature.KV_CACHE_QUANT),
    "on_device_sampling": _either(Feature.ON_DEVICE_SAMPLING, Feature.CPU_SAMPLING),
    "global_topk": _set(Feature.GLOBAL_TOPK),
    "fused_speculation": _either(Feature.FUSED_SPECULATION, Feature.UNFUSED_SPECULATION),
    "attn_kernel_enabled": _set(Feature.KERNELS),
    "qkv_kernel_enabled": _set(Feature.KERNELS),
    "mlp_kernel_enabled": _set(Feature.KERNELS),
    "quantized_mlp_kernel_enabled": _set(Feature.KERNELS),
    "fused_qkv": _set(Feature.KERNELS),
    "sequence_parallel_enabled": _set(Feature.SEQUENCE_PARALLEL),
    "async_mode": _set(Feature.ASYNC_MODE),
    "skip_warmup": _set(Feature.SKIP_WARMUP),
    "save_sharded_checkpoint": _set(Feature.SHARDED_CHECKPOINT),
    "enable_lora": _set(Feature.LORA),
    "lora_modules": _set(Feature.LORA),
    "text_neuron_config": _set(Feature.MULTIMODAL),
    "vision_neuron_config": _set(Feature.MULTIMODAL),
    "disaggregation": _set(Feature.DISAGGREGATION),
    "nodes": _nodes,
}


def requested_features(config: EndpointConfig) -> Iterator[tuple[str, Feature]]:
    """Every feature that a configuration requests, after the field that requests it."""
    for field, rule in RULES.items():
        feature = rule(getattr(config, field))
        if feature is not None:
            yield field, feature
    if config.speculative_model is not None or config.speculation is not None:
        method = config.speculation or "draft_model"
        field = "speculation" if config.speculation is not None else "speculative_model"
        if method in METHODS:
            yield field, METHODS[method]


class ConfigKeys(StrEnum):
    """The software whose configuration keys a line's raw NeuronConfig holds."""

    NXDI = "nxdi"
    NATIVE = "native"
    TRANSFORMERS_NEURONX = "transformers-neuronx"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Line:
    """A line: one generation of vLLM and Neuron.

    :param name: the name that a user sets: `nxdi-0.16`.
    :param framework: on the fork's lines, the value of VLLM_NEURON_FRAMEWORK that means this one; "" on all others.
    :param platforms: the Neuron platforms that it runs on; empty for CPU.
    :param sdk: the newest Neuron SDK that contains it, as (major, minor); (0, 0) for CPU.
    :param served: this container can start it. The other lines are for plans only.
    :param spell: completes a draft and writes the line's engine arguments and environment into it.
    """

    name: str
    features: frozenset[Feature]
    keys: ConfigKeys
    platforms: tuple[str, ...]
    sdk: tuple[int, int]
    spell: Callable[[PlanDraft], None]
    framework: str = ""
    served: bool = True

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    @property
    def not_served(self) -> str:
        """Why a start on a line for plans only is rejected."""
        return f"{self.name} is a line for plans only: no image of this project holds it, and it does not start here"
