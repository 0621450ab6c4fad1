"""The keys of the native plugin's `additional_config`, `neuron_config` and vision section. Unknown ones are ignored.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/model/neuron_config.py (NeuronConfig, OnDeviceSamplingConfig and
VisionNeuronConfig: `from_dict` reads these keys and no others); AWS Neuron documentation, vLLM Neuron, "Configuration
options" (SDK 2.31 - 2.33).
"""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.keys import ConfigKey


def _kind(kind: str, names: str) -> dict[str, ConfigKey]:
    return {name: ConfigKey(kind) for name in names.split()}


# Degrees of parallelism, each at least 1.
DEGREES: Final = ("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size")
NATIVE_KEYS: Final[dict[str, ConfigKey]] = {
    **_kind("list", "num_batched_tokens_buckets num_seqs_buckets kv_segment_size_buckets"),
    **_kind("list", "decode_context_length_buckets modules_to_not_convert"),
    **_kind("dict", "on_device_sampling_config tensor_capture tensor_replacement"),
    **_kind("int", " ".join((*DEGREES, "max_logprobs"))),
    **_kind("str", "quantization debug_logits_dir all2all_backend"),
    **_kind("bool", "enable_structured_outputs fp8_packed_kv"),
}
# What version 0.21 reads as well.
KEYS_021: Final[dict[str, ConfigKey]] = {
    **_kind("bool", "apply_prefill_dcp"),
    **_kind("list", "prefill_sequence_buckets decode_batch_buckets"),
}
NATIVE_SAMPLING_KEYS: Final[dict[str, ConfigKey]] = {
    **_kind("any", "all_greedy deterministic capture_topk"),
    **_kind("int", "max_top_k sampling_dp_degree"),
}
# Keys of the documentation's examples that the plugin takes and never reads.
SWALLOWED: Final = ("temperature", "top_k", "top_p")
VISION_KEYS: Final[dict[str, ConfigKey]] = {
    **_kind("list", "num_vision_tokens_buckets"),
    **_kind("int", "vision_attention_block_size tp_size dp_size max_vision_seq_len encoder_cache_num_blocks"),
    **_kind("float", "encoder_cache_min_hold_time_ms"),
}
# The top level of `additional_config`, beside the vision section.
TOP_LEVEL: Final[dict[str, ConfigKey]] = {
    **_kind("dict", "neuron_config neuron_profiler"),
    **_kind("bool", "mm_language_model_only"),
}
DECODE_STEP: Final = 128
