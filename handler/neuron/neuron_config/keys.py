"""The keys of NeuronConfig and of the native plugin, each with the kind of its value and its default.

Source: aws-neuron/neuronx-distributed-inference, src/neuronx_distributed_inference/models/config.py (NeuronConfig,
MultimodalVisionNeuronConfig, MoENeuronConfig, OnDeviceSamplingConfig, ChunkedPrefillConfig). An unknown key does not
raise there: `NeuronConfig` logs a warning, `OnDeviceSamplingConfig` silently drops it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. None is allowed as a value of every key.

    :param kind: int, float, bool, str, list, dict, any, or digits: a whole number or its text.
    """

    kind: str
    default: Json = None


def _keys(kind: str, **defaults: Json) -> dict[str, ConfigKey]:
    return {name: ConfigKey(kind, default) for name, default in defaults.items()}


def _flags(names: str) -> dict[str, ConfigKey]:
    return {name: ConfigKey("bool", False) for name in names.split()}


def _unset(kind: str, names: str) -> dict[str, ConfigKey]:
    """Keys whose default is None, or follows from another key (see `config_values.FOLLOWS`)."""
    return {name: ConfigKey(kind) for name in names.split()}


SHAPE: Final = {
    **_keys("int", batch_size=1, seq_len=128),
    **_unset("int", "n_positions n_active_tokens max_context_length max_new_tokens max_length"),
    **_unset("int", "padded_hidden_size padded_intermediate_size windowed_context_encoding_size"),
    **_unset("digits", "scratchpad_page_size"),
    **_keys("str", padding_side="right", torch_dtype="bfloat16", cast_type="config", attn_cls="NeuronLlamaAttention"),
    **_unset("str", "rpl_reduce_dtype attention_dtype target"),
    **_flags("allow_input_truncation on_cpu output_logits vocab_parallel enable_cte_modular_flow"),
    **_flags("layer_boundary_markers qk_layernorm pre_rope_rmsnorm apply_seq_ids_mask skip_warmup"),
    **_keys("bool", overrides_torch_dtype=True),
}
BATCHING: Final = {
    **_unset("int", "ctx_batch_size tkg_batch_size max_batch_size kv_cache_batch_size spec_batch_size"),
    **_keys("int", kv_cache_padding_size=0),
    **_flags("is_continuous_batching async_mode enable_bucketing bucket_n_active_tokens"),
    **_unset("list", "buckets context_encoding_buckets prefix_buckets token_generation_buckets"),
    **_unset("any", "token_generation_batches"),
}
SAMPLING: Final = {**_unset("dict", "on_device_sampling_config"), **_flags("disable_argmax_kernel")}
QUANTIZATION: Final = {
    **_flags("quantized kv_cache_quant is_mxfp4_compute is_full_model_shuffled"),
    **_unset("str", "quantized_checkpoints_path activation_quantization_type"),
    **_keys("str", quantization_type="per_tensor_symmetric", quantization_dtype="int8"),
    **_keys("str", quantization_scale_dtype="f32"),
    **_unset("any", "quantization_block_size quantization_block_axis"),
    **_unset("list", "modules_to_not_convert draft_model_modules_to_not_convert"),
    **_unset("dict", "kv_quant_config"),
    **_unset("float", "quantize_clamp_bound"),
}
SPECULATION: Final = {
    **_keys("int", speculation_length=0, medusa_speculation_length=0, num_medusa_heads=0),
    **_flags("enable_fused_speculation enable_eagle_speculation eagle_rolling_buffer_kernel_enabled is_eagle3"),
    **_flags("is_eagle_draft enable_eagle_draft_input_norm is_medusa"),
    **_unset("any", "token_tree_config medusa_tree"),
}
BLOCKS: Final = {
    **_flags("is_block_kv_layout is_prefix_caching flash_decoding_enabled disable_kv_cache_tiling k_cache_transposed"),
    **_unset("int", "pa_num_blocks pa_block_size"),
    **_unset("dict", "chunked_prefill_config"),
}
DISTRIBUTED: Final = {
    **_keys("int", tp_degree=1, cp_degree=1, mlp_cp_degree=1, attention_dp_degree=1, pp_degree=1, ep_degree=1),
    **_keys("int", start_rank_id=0),
    **_unset("int", "world_size local_ranks_size logical_nc_config"),
    **_flags("save_sharded_checkpoint skip_sharding enable_ve_data_parallel sequence_parallel_enabled fused_qkv"),
    **_keys("int", weight_gather_seq_len_threshold=32768),
    **_keys("str", ep_dispatch_cc_option="AR_AG"),
    **_unset("dict", "lora_config tensor_replacement_config tensor_capture_config"),
}
KERNELS: Final = {
    **_unset("bool", "attn_kernel_enabled moe_fused_nki_kernel_enabled router_topk_nki_kernel_enabled"),
    **_unset("bool", "expert_mlp_nki_kernel_enabled shared_mlp_nki_kernel_enabled"),
    **_flags("strided_context_parallel_kernel_enabled qkv_kernel_enabled qkv_nki_kernel_enabled"),
    **_flags("qkv_cte_nki_kernel_fuse_rope qkv_kernel_nbsd_layout mlp_kernel_enabled mlp_tkg_nki_kernel_enabled"),
    **_flags("fused_rmsnorm_skip_gamma mlp_kernel_fuse_residual_add qkv_kernel_fuse_residual_add"),
    **_flags("quantized_mlp_kernel_enabled out_proj_kernel_enabled attn_tkg_nki_kernel_enabled"),
    **_flags("attn_tkg_builtin_kernel_enabled attn_block_tkg_nki_kernel_enabled rmsnorm_quantize_kernel_enabled"),
    **_flags("attn_block_tkg_nki_kernel_cache_update attn_block_tkg_nki_kernel_cascaded_attention"),
    **_flags("attn_block_tkg_nki_kernel_disable_gpsimd_sb2sb attn_block_cte_nki_kernel_enabled"),
    **_keys("bool", attn_block_tkg_nki_kernel_use_online_softmax=True),
}
COMPILER: Final = {
    **_keys("int", cc_pipeline_tiling_factor=2, seq_len_threshold_for_cc_tiling=16384, lm_head_pad_alignment_size=1),
    **_unset("bool", "lm_head_pad"),
    **_flags("enable_spill_reload_dge enable_output_completion_notifications disable_numeric_cc_token switch_cc"),
    **_unset("list", "weights_to_skip_layout_optimization"),
    **_unset("any", "dma_order_config"),
}
EXPERTS: Final = {
    **_flags("skip_vision use_index_calc_kernel moe_mask_padded_tokens early_expert_affinity_modulation"),
    **_flags("disable_normalize_top_k_affinities fused_shared_experts shared_experts_sequence_parallel_enabled"),
    **_flags("return_expert_index return_router_logits transpose_shared_experts_weights"),
    **_keys("bool", glu_mlp=True),
    **_keys("str", glu_type="glu"),
    **_keys("float", hidden_act_scaling_factor=1.0, hidden_act_bias=0.0),
    **_unset("float", "capacity_factor gate_clamp_upper_limit gate_clamp_lower_limit"),
    **_unset("float", "up_clamp_upper_limit up_clamp_lower_limit"),
    **_keys("int", moe_tp_degree=1, moe_ep_degree=1),
    **_unset("str", "router_act_fn router_dtype"),
    **_unset("dict", "hybrid_sharding_config blockwise_matmul_config router_config"),
}
# models/gpt_oss/modeling_gpt_oss.py:456, models/qwen2_vl/modeling_qwen2_vl.py:72.
OF_MODELS: Final = {
    **_keys("int", sliding_window_attention_dp_degree=1),
    **_unset("int", "default_image_width default_image_height"),
}
# Keys that the plugin takes out of the override before NeuronConfig reads it (plugin 0.5.0,
# worker/neuronx_distributed_model_loader.py:184 for `draft_overrides`).
PLUGIN: Final = {
    **_unset("str", "lora_ckpt_json"),
    **_unset("list", "target_modules"),
    **_unset("list", "lora_modules"),  # the fork's runner does (vLLM 0.9.1)
    **_unset("dict", "text_neuron_config vision_neuron_config draft_overrides"),
}
KEYS: Final[dict[str, ConfigKey]] = {
    **SHAPE,
    **BATCHING,
    **SAMPLING,
    **QUANTIZATION,
    **SPECULATION,
    **BLOCKS,
    **DISTRIBUTED,
    **KERNELS,
    **COMPILER,
    **EXPERTS,
    **OF_MODELS,
}
# Deprecated key -> its replacement: it is still read (NxDI 0.10, models/config.py:733). Without one, the class computes
# the value itself (:766).
DEPRECATED: Final = {"trace_tokengen_model": "", "logical_neuron_cores": "logical_nc_config"}

SAMPLING_KEYS: Final[dict[str, ConfigKey]] = {
    **_flags("do_sample dynamic deterministic"),
    **_keys("int", top_k=1, global_topk=256, sampling_dp_degree=1),
    **_keys("float", top_p=1.0, temperature=1.0),
    **_keys("bool", on_device_sampling_config=True, top_k_kernel_enabled=True),
}
CHUNKED_PREFILL_KEYS: Final[dict[str, ConfigKey]] = {
    **_keys("int", max_num_seqs=0, kernel_q_tile_size=128, kernel_kv_tile_size=1024),
    **_keys("bool", tkg_model_enabled=True),
}

# The native plugin's `additional_config`: `neuron_config` and the vision section. It ignores unknown keys.
#
# Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/model/neuron_config.py (NeuronConfig, OnDeviceSamplingConfig and
# VisionNeuronConfig: `from_dict` reads these keys and no others); AWS Neuron documentation, vLLM Neuron, "Configuration
# options" (SDK 2.31 - 2.33).

# Degrees of parallelism, each at least 1.
DEGREES: Final = ("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size")
NATIVE_KEYS: Final[dict[str, ConfigKey]] = {
    **_unset("list", "num_batched_tokens_buckets num_seqs_buckets kv_segment_size_buckets"),
    **_unset("list", "decode_context_length_buckets modules_to_not_convert"),
    **_unset("dict", "on_device_sampling_config tensor_capture tensor_replacement"),
    **_unset("int", " ".join((*DEGREES, "max_logprobs"))),
    **_unset("str", "quantization debug_logits_dir all2all_backend"),
    **_unset("bool", "enable_structured_outputs fp8_packed_kv"),
}
# What version 0.21 reads as well.
KEYS_021: Final[dict[str, ConfigKey]] = {
    **_unset("bool", "apply_prefill_dcp"),
    **_unset("list", "prefill_sequence_buckets decode_batch_buckets"),
}
# The plugin calls `int` on the last two.
NATIVE_SAMPLING_KEYS: Final[dict[str, ConfigKey]] = {
    **_unset("any", "all_greedy deterministic capture_topk"),
    **_unset("digits", "max_top_k sampling_dp_degree"),
}
# Keys of the documentation's examples that the plugin takes and never reads.
SWALLOWED: Final = ("temperature", "top_k", "top_p")
VISION_KEYS: Final[dict[str, ConfigKey]] = {
    **_unset("list", "num_vision_tokens_buckets"),
    **_unset("int", "vision_attention_block_size tp_size dp_size max_vision_seq_len encoder_cache_num_blocks"),
    **_unset("float", "encoder_cache_min_hold_time_ms"),
}
# The top level of `additional_config`, beside the vision section.
TOP_LEVEL: Final[dict[str, ConfigKey]] = {
    **_unset("dict", "neuron_config neuron_profiler"),
    **_unset("bool", "mm_language_model_only"),
}
DECODE_STEP: Final = 128
