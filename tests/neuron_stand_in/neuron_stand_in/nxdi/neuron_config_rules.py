"""The rules of NeuronConfig, each with the type of error that the class raises (NxDI, models/config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]
DTYPES = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}


def refuse(condition: object, message: str) -> None:
    if condition:
        raise ValueError(message)


def check(config: Config) -> None:
    """:raises AssertionError, ValueError: the first rule that is broken."""
    for rule in (_dtypes, _lengths, _quantization, _speculation, _degrees, _kernels, _token_batches):
        rule(config)


def _dtypes(c: Config) -> None:
    for key in ("torch_dtype", "attention_dtype", "rpl_reduce_dtype"):
        assert c[key] is None or c[key] in DTYPES, f"Unsupported dtype: {c[key]}"
    refuse(c["cast_type"] not in ("config", "as-declared"), "cast_type must be one of config, as-declared")
    if c["attention_dtype"] not in (None, c["torch_dtype"]):
        assert c["cast_type"] == "as-declared", "attention_dtype differs from torch_dtype: cast_type=as-declared"


def _lengths(c: Config) -> None:
    assert c["max_context_length"] <= c["max_length"], "max_context_length cannot be more than max_length"
    for key, most in (("context_encoding_buckets", "max_context_length"), ("token_generation_buckets", "max_length")):
        assert not c[key] or c[key][-1] <= c[most], f"{key}: {c[key][-1]} should be <= {c[most]}"
    batches = c["token_generation_batches"]
    assert not batches or batches[-1] <= c["tkg_batch_size"], "token_generation_batches above tkg_batch_size"


def _quantization(c: Config) -> None:
    kernel = c["qkv_kernel_enabled"] or c["qkv_nki_kernel_enabled"]
    activations = c["activation_quantization_type"]
    if c["quantized"]:
        assert c["quantized_checkpoints_path"] is not None, "quantized_checkpoints_path is required"
    if (c["quantized"] or c["quantized_mlp_kernel_enabled"] or activations) and kernel:
        assert c["modules_to_not_convert"], "Could not find modules_to_not_convert for quantized model."
    assert activations in (None, "dynamic", "static"), f"Unsupported activation quantization type: {activations}"
    if c["rmsnorm_quantize_kernel_enabled"]:
        assert c["quantized_mlp_kernel_enabled"], "rmsnorm_quantize_kernel needs quantized_mlp_kernel"


def _speculation(c: Config) -> None:
    refuse(c["is_medusa"] and c["async_mode"], "Medusa Decoding is not yet supported with async.")
    if c["chunked_prefill_config"] is not None:
        assert c["is_block_kv_layout"], "is_block_kv_layout has to be true for chunked prefill"


def _degrees(c: Config) -> None:
    tp, cp, dp, batch = c["tp_degree"], c["cp_degree"], c["attention_dp_degree"], c["tkg_batch_size"]
    refuse(tp % cp, "TP Degree must be evenly divisible by CP Degree")
    refuse(c["mlp_cp_degree"] > 1 and not c["sequence_parallel_enabled"], "mlp_cp_degree needs sequence parallel")
    refuse(tp % dp, "TP Degree must be evenly divisible by DP Degree")
    refuse(batch % dp, "Batch Size must be evenly divisible by DP Degree")
    refuse(cp > 1 and dp > 1 and (cp < dp or cp % dp), "Running DP Degree > CP Degree is not supported")
    refuse(dp > 1 and not c["is_continuous_batching"], "is_continuous_batching must be enabled when running DP")
    refuse(c["ep_dispatch_cc_option"] == "RS_AG" and tp > batch, "RS_AG not supported when TP degree > batch size")


def _kernels(c: Config) -> None:
    if c["qkv_cte_nki_kernel_fuse_rope"]:
        assert all((c["qkv_kernel_enabled"], c["qkv_nki_kernel_enabled"])), "fuse_rope needs both qkv kernels"
    refuse(c["strided_context_parallel_kernel_enabled"] and c["cp_degree"] == 1, "strided CP without CP")
    token_kernel = c["attn_block_tkg_nki_kernel_enabled"]
    token_kernel = token_kernel or c["attn_tkg_nki_kernel_enabled"] or c["attn_tkg_builtin_kernel_enabled"]
    for key in ("attn_block_tkg_nki_kernel_cache_update", "attn_block_tkg_nki_kernel_cascaded_attention"):
        assert token_kernel or not c[key], f"{key} needs attn_block_tkg_nki_kernel_enabled"
    if c["k_cache_transposed"]:
        for key in ("flash_decoding_enabled", "chunked_prefill_config", "is_block_kv_layout"):
            assert not c[key], f"Transposed K cache is not yet supported by {key}"
    needed = ("qkv_kernel_enabled", "qkv_nki_kernel_enabled", "out_proj_kernel_enabled")
    refuse(
        c["attn_block_cte_nki_kernel_enabled"] and not all(c[key] for key in needed),
        f"attn_block_cte_nki_kernel_enabled without {needed}",
    )


def _token_batches(c: Config) -> None:
    if c["token_generation_batches"] is None:
        return
    with_it = ["speculation_length", "enable_fused_speculation", "is_medusa", "token_tree_config"]
    with_it += ["chunked_prefill_config", "is_prefix_caching", "is_block_kv_layout"]
    clash = [key for key in with_it if c[key]]
    refuse(clash, f"Batch bucketing is not currently supported with the following features: {clash}")
