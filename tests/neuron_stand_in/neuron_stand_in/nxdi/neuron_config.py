"""NeuronConfig: its defaults, its rules, and the warning that is all an unknown key gets (NxDI, models/config.py)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from neuron_stand_in.nxdi.neuron_config_rules import check
from neuron_stand_in.nxdi.sampling_config import sampling_config

logger = logging.getLogger("neuron_stand_in")


def words(text: str) -> list[str]:
    return text.split()


FLAGS = frozenset(
    words("""
    allow_input_truncation on_cpu output_logits vocab_parallel fused_qkv sequence_parallel_enabled
    is_continuous_batching async_mode enable_bucketing bucket_n_active_tokens disable_argmax_kernel quantized
    is_mxfp4_compute is_full_model_shuffled kv_cache_quant enable_fused_speculation enable_eagle_speculation
    eagle_rolling_buffer_kernel_enabled is_eagle3 is_eagle_draft enable_eagle_draft_input_norm is_medusa
    is_block_kv_layout is_prefix_caching save_sharded_checkpoint skip_sharding enable_ve_data_parallel qk_layernorm
    pre_rope_rmsnorm flash_decoding_enabled disable_kv_cache_tiling k_cache_transposed
    strided_context_parallel_kernel_enabled qkv_kernel_enabled qkv_nki_kernel_enabled qkv_cte_nki_kernel_fuse_rope
    qkv_kernel_nbsd_layout mlp_kernel_enabled mlp_tkg_nki_kernel_enabled fused_rmsnorm_skip_gamma
    mlp_kernel_fuse_residual_add qkv_kernel_fuse_residual_add quantized_mlp_kernel_enabled out_proj_kernel_enabled
    attn_tkg_nki_kernel_enabled attn_tkg_builtin_kernel_enabled attn_block_tkg_nki_kernel_enabled
    attn_block_tkg_nki_kernel_cache_update attn_block_tkg_nki_kernel_cascaded_attention
    attn_block_cte_nki_kernel_enabled rmsnorm_quantize_kernel_enabled enable_spill_reload_dge apply_seq_ids_mask
    skip_warmup enable_output_completion_notifications disable_numeric_cc_token switch_cc enable_cte_modular_flow
    layer_boundary_markers
""")
)
NONE_BY_DEFAULT = frozenset(
    words("""
    rpl_reduce_dtype attention_dtype context_encoding_buckets prefix_buckets token_generation_buckets
    token_generation_batches quantized_checkpoints_path quantization_block_size quantization_block_axis
    modules_to_not_convert draft_model_modules_to_not_convert token_tree_config medusa_tree
    windowed_context_encoding_size chunked_prefill_config kv_quant_config tensor_replacement_config
    tensor_capture_config lora_config world_size local_ranks_size attn_kernel_enabled activation_quantization_type
    target scratchpad_page_size dma_order_config padded_hidden_size padded_intermediate_size max_new_tokens
    moe_fused_nki_kernel_enabled router_topk_nki_kernel_enabled expert_mlp_nki_kernel_enabled
    shared_mlp_nki_kernel_enabled on_device_sampling_config
""")
)
VALUES: Mapping[str, Any] = {
    "batch_size": 1,
    "padding_side": "right",
    "seq_len": 128,
    "torch_dtype": "bfloat16",
    "cast_type": "config",
    "weight_gather_seq_len_threshold": 32768,
    "kv_cache_padding_size": 0,
    "quantization_type": "per_tensor_symmetric",
    "quantization_dtype": "int8",
    "quantization_scale_dtype": "f32",
    "speculation_length": 0,
    "medusa_speculation_length": 0,
    "num_medusa_heads": 0,
    "tp_degree": 1,
    "cp_degree": 1,
    "mlp_cp_degree": 1,
    "attention_dp_degree": 1,
    "pp_degree": 1,
    "ep_degree": 1,
    "start_rank_id": 0,
    "attn_block_tkg_nki_kernel_use_online_softmax": True,
    "attn_block_tkg_nki_kernel_disable_gpsimd_sb2sb": False,
    "cc_pipeline_tiling_factor": 2,
    "seq_len_threshold_for_cc_tiling": 16384,
    "weights_to_skip_layout_optimization": [],
    "ep_dispatch_cc_option": "AR_AG",
    "lm_head_pad_alignment_size": 1,
}
FROM_SEQ_LEN = ("n_active_tokens", "n_positions", "max_context_length", "max_length", "pa_block_size")
FROM_BATCH = words("ctx_batch_size tkg_batch_size max_batch_size kv_cache_batch_size spec_batch_size pa_num_blocks")
MADE = ("logical_nc_config", "logical_neuron_cores", "lm_head_pad", "buckets")
KNOWN = {*FLAGS, *NONE_BY_DEFAULT, *VALUES, *FROM_SEQ_LEN, *FROM_BATCH, *MADE}


def build_neuron_config(given: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Every attribute with its value, as neuron_config.json has them.

    :raises AssertionError, ValueError: a rule of the class is broken. Unknown keys are dropped with a warning.
    """
    unknown = sorted(given.keys() - KNOWN)
    if unknown:
        logger.warning("NeuronConfig init: Unexpected keyword arguments: %s", unknown)
    config = {**dict.fromkeys(FLAGS, False), **dict.fromkeys(NONE_BY_DEFAULT), **VALUES}
    config.update((key, value) for key, value in given.items() if key in KNOWN)
    for key in FROM_SEQ_LEN:
        config.setdefault(key, config["seq_len"])
    for key in FROM_BATCH:
        config.setdefault(key, config["batch_size"])
    config.setdefault("buckets", [config["seq_len"]])
    for key in ("context_encoding_buckets", "token_generation_buckets", "token_generation_batches"):
        if config[key] is not None:
            config[key] = sorted(config[key])
    config["on_device_sampling_config"] = sampling_config(config["on_device_sampling_config"])
    if config["enable_eagle_speculation"]:
        config["enable_fused_speculation"] = True
    if config["world_size"] is None:
        config["world_size"] = config["tp_degree"] * config["pp_degree"] * config["ep_degree"]
    if config["local_ranks_size"] is None:
        config["local_ranks_size"] = config["world_size"]
    config["logical_nc_config"] = logical_cores(config, environment)
    config.pop("logical_neuron_cores", None)
    config.setdefault("lm_head_pad", config["logical_nc_config"] > 1)
    check(config)
    return config


def logical_cores(config: Mapping[str, Any], environment: Mapping[str, str]) -> int:
    """LNC: the environment over the configuration over the platform."""
    set_here = config.get("logical_nc_config", config.get("logical_neuron_cores"))
    outside = environment.get("NEURON_LOGICAL_NC_CONFIG")
    if outside is not None:
        if set_here is not None and int(set_here) != int(outside):
            logger.warning("NEURON_LOGICAL_NC_CONFIG=%s does not match logical_nc_config=%s", outside, set_here)
        return int(outside)
    if set_here is not None:
        return int(set_here)
    return 2 if environment.get("NEURON_PLATFORM_TARGET_OVERRIDE", "inf2") in ("trn2", "trn3") else 1
