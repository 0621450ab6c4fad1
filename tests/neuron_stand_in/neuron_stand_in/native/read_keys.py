"""The keys that the plugin reads. It drops every other one without a word (vllm_neuron/model/neuron_config.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

READ: Mapping[str, frozenset[str]] = {
    "": frozenset(("neuron_config", "vision_neuron_config", "mm_language_model_only", "neuron_profiler")),
    "neuron_config": frozenset(
        (
            *("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size"),
            *("on_device_sampling_config", "max_logprobs", "tensor_capture", "tensor_replacement"),
            *("kv_segment_size_buckets", "debug_logits_dir", "quantization", "all2all_backend"),
            *("modules_to_not_convert", "num_batched_tokens_buckets", "num_seqs_buckets"),
            *("decode_context_length_buckets", "enable_structured_outputs", "fp8_packed_kv"),
        )
    ),
    "on_device_sampling_config": frozenset(
        ("all_greedy", "max_top_k", "deterministic", "sampling_dp_degree", "capture_topk")
    ),
    "vision_neuron_config": frozenset(
        (
            *("num_vision_tokens_buckets", "vision_attention_block_size", "tp_size", "dp_size"),
            *("max_vision_seq_len", "encoder_cache_num_blocks", "encoder_cache_min_hold_time_ms"),
        )
    ),
}


def ignored(additional: Mapping[str, Any], section: str = "") -> Iterator[str]:
    """The keys of `additional_config` without an effect, with the section they are in."""
    for key, value in additional.items():
        if key not in READ[section]:
            yield f"{section}.{key}" if section else key
        elif key in READ and isinstance(value, Mapping):
            yield from ignored(value, key)
