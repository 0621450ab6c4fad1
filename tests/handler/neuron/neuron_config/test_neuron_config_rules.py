"""Our table finds each rule on which NeuronConfig raises, with its code and the name that the user wrote."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from handler.neuron.neuron_config.class_rules import CLASS_RULES
from tests.handler.neuron.neuron_plans import found, llama, outcome

BATCH: dict[str, Any] = {"max_num_seqs": 4}
CHUNKED = {"chunked_prefill_config": {"max_num_seqs": 4}}
# code: (settings, raw NeuronConfig, the setting named)
BREAKS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "unknown-dtype": ({}, {"torch_dtype": "int4"}, "torch_dtype"),
    "unknown-cast-type": ({}, {"cast_type": "all"}, "cast_type"),
    "attention-dtype": ({"dtype": "bfloat16"}, {"attention_dtype": "float32"}, "attention_dtype"),
    "context-longer-than-length": ({"max_context_length": 4096, "max_model_len": 2048}, {}, "max_context_length"),
    "empty-buckets": ({}, {"token_generation_batches": []}, "token_generation_batches"),
    "context-bucket-too-long": (
        {"context_encoding_buckets": (512, 2048), "max_model_len": 1024},
        {},
        "context_encoding_buckets",
    ),
    "token-bucket-too-long": (
        {"token_generation_buckets": (512, 2048), "max_model_len": 1024},
        {},
        "token_generation_buckets",
    ),
    "token-batch-too-large": (BATCH, {"token_generation_batches": [2, 8]}, "token_generation_batches"),
    "batch-buckets-alone": (
        {**BATCH, "enable_prefix_caching": True},
        {"token_generation_batches": [2]},
        "token_generation_batches",
    ),
    "chunked-attention": (
        {**BATCH, "enable_prefix_caching": True, "max_model_len": 16384},
        {},
        "enable_prefix_caching",
    ),
    "quantized-without-path": ({"quantization": "int8"}, {}, "quantized_checkpoints_path"),
    "quantized-qkv-kernel": (
        {"quantization": "fp8", "quantized_checkpoints_path": "/q", "qkv_kernel_enabled": True},
        {},
        "modules_to_not_convert",
    ),
    "activation-quantization-type": ({}, {"activation_quantization_type": "DYNAMIC"}, "activation_quantization_type"),
    "activation-quantization-kernels": (
        {"mlp_kernel_enabled": True},
        {"activation_quantization_type": "dynamic"},
        "activation_quantization_type",
    ),
    "rmsnorm-quantize": ({}, {"rmsnorm_quantize_kernel_enabled": True}, "rmsnorm_quantize_kernel_enabled"),
    "full-model-shuffled": ({}, {"is_full_model_shuffled": True}, "is_full_model_shuffled"),
    "medusa-async": ({"async_mode": True}, {"is_medusa": True}, "async_mode"),
    "chunked-without-blocks": (
        {"line": "nxdi-0.13"},
        {**CHUNKED, "is_block_kv_layout": False},
        "is_block_kv_layout",
    ),
    "chunked-batch": (
        {"line": "nxdi-0.13"},
        {"chunked_prefill_config": {"tkg_model_enabled": False}, "batch_size": 2},
        "batch_size",
    ),
    "tp-by-cp": ({"tensor_parallel_size": 8}, {"cp_degree": 3}, "cp_degree"),
    "tp-by-dp": ({"tensor_parallel_size": 8, "max_num_seqs": 6}, {"attention_dp_degree": 3}, "attention_dp_degree"),
    "batch-by-dp": ({"tensor_parallel_size": 8, "max_num_seqs": 6}, {"attention_dp_degree": 4}, "attention_dp_degree"),
    "dp-continuous-batching": (
        {**BATCH, "tensor_parallel_size": 8},
        {"attention_dp_degree": 2, "is_continuous_batching": False},
        "is_continuous_batching",
    ),
    "dp-above-cp": (
        {**BATCH, "tensor_parallel_size": 8},
        {"attention_dp_degree": 4, "cp_degree": 2},
        "attention_dp_degree",
    ),
    "mlp-cp-sequence-parallel": ({}, {"mlp_cp_degree": 2}, "sequence_parallel_enabled"),
    "strided-context-parallel": (
        {},
        {"strided_context_parallel_kernel_enabled": True},
        "strided_context_parallel_kernel_enabled",
    ),
    "rs-ag-batch": ({**BATCH, "tensor_parallel_size": 8}, {"ep_dispatch_cc_option": "RS_AG"}, "ep_dispatch_cc_option"),
    "cte-kernel-parts": (
        {"qkv_kernel_enabled": True},
        {"attn_block_cte_nki_kernel_enabled": True},
        "attn_block_cte_nki_kernel_enabled",
    ),
    "block-kernel-qkv": ({}, {"attn_block_tkg_nki_kernel_enabled": True}, "attn_block_tkg_nki_kernel_enabled"),
    "block-kernel-parts": (
        {},
        {"attn_block_tkg_nki_kernel_cascaded_attention": True},
        "attn_block_tkg_nki_kernel_cascaded_attention",
    ),
    "block-kernel-alone": (
        {"qkv_kernel_enabled": True},
        {"attn_block_tkg_nki_kernel_enabled": True, "flash_decoding_enabled": True},
        "attn_block_tkg_nki_kernel_enabled",
    ),
    "fuse-rope": ({"qkv_kernel_enabled": True}, {"qkv_cte_nki_kernel_fuse_rope": True}, "qkv_cte_nki_kernel_fuse_rope"),
    "transposed-k-cache": (
        {**BATCH, "enable_prefix_caching": True},
        {"k_cache_transposed": True},
        "k_cache_transposed",
    ),
    "dp-cache-update": (
        {**BATCH, "tensor_parallel_size": 8, "qkv_kernel_enabled": True},
        {
            "attention_dp_degree": 2,
            "attn_block_tkg_nki_kernel_enabled": True,
            "attn_block_tkg_nki_kernel_cache_update": True,
        },
        "attn_block_tkg_nki_kernel_cache_update",
    ),
}


def test_the_table_has_every_rule_of_the_class() -> None:
    """Those of the plugin and of the models are in tests/model_packaging/test_nxdi_refusals.py."""
    assert set(BREAKS) == {rule.code for rule in CLASS_RULES}


@pytest.mark.parametrize("code", BREAKS)
def test_a_broken_rule_is_found_with_a_fix_that_works(code: str) -> None:
    settings, raw, setting = BREAKS[code]
    settings = dict(settings)
    line = settings.pop("line", "nxdi-0.16")
    facts = llama(config={"attention_chunk_size": 8192})
    result = outcome(line, facts=facts, neuron_config=raw, **settings)
    finding = found(result, code)
    assert result.plan is None
    assert finding.severity is Severity.ERROR
    assert finding.setting == setting
    assert finding.why
    assert finding.fix


HOLDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attention-dtype": ({}, {"attention_dtype": "float32", "cast_type": "as-declared"}),
    "context-longer-than-length": ({"max_context_length": 1024, "max_model_len": 2048}, {}),
    "context-bucket-too-long": ({"context_encoding_buckets": (512, 1024), "max_model_len": 1024}, {}),
    "token-bucket-too-long": ({"token_generation_buckets": (512, 1024), "max_model_len": 1024}, {}),
    "token-batch-too-large": (BATCH, {"token_generation_batches": [2, 4]}),
    "quantized-without-path": ({"quantization": "int8", "quantized_checkpoints_path": "/q"}, {}),
    "quantized-qkv-kernel": (
        {
            "quantization": "fp8",
            "quantized_checkpoints_path": "/q",
            "qkv_kernel_enabled": True,
            "fused_qkv": True,
            "modules_to_not_convert": ("lm_head",),
        },
        {},
    ),
    "medusa-async": ({}, {"is_medusa": True}),
    "tp-by-cp": ({"tensor_parallel_size": 8}, {"cp_degree": 4}),
    "dp-above-cp": ({**BATCH, "tensor_parallel_size": 8}, {"attention_dp_degree": 2, "cp_degree": 4}),
    "mlp-cp-sequence-parallel": ({"sequence_parallel_enabled": True}, {"mlp_cp_degree": 2}),
    "rmsnorm-quantize": (
        {"quantized_mlp_kernel_enabled": True, "mlp_kernel_enabled": True},
        {"rmsnorm_quantize_kernel_enabled": True},
    ),
    "cte-kernel-parts": (
        {"qkv_kernel_enabled": True, "fused_qkv": True},
        {
            "attn_block_cte_nki_kernel_enabled": True,
            "qkv_nki_kernel_enabled": True,
            "out_proj_kernel_enabled": True,
        },
    ),
    "chunked-attention": ({**BATCH, "enable_prefix_caching": True, "max_model_len": 8192}, {}),
}


@pytest.mark.parametrize(
    ("raw", "code"),
    [({"cp_degree": 3}, "chunked-attention-parallel"), ({"attention_dp_degree": 2}, "chunked-attention")],
)
def test_the_text_model_of_one_with_images_has_its_own_chunks(raw: dict[str, Any], code: str) -> None:
    llama4 = {"model_type": "llama4", "text_config": {"model_type": "llama4_text", "attention_chunk_size": 8192}}
    text = {"tp_degree": 6, "is_continuous_batching": True, **raw}
    result = outcome("nxdi-0.16", facts=llama(config=llama4), max_model_len=16384, text_neuron_config=text)
    assert found(result, code).severity is Severity.ERROR


@pytest.mark.parametrize("code", HOLDS)
def test_a_rule_that_holds_is_silent(code: str) -> None:
    settings, raw = HOLDS[code]
    result = outcome("nxdi-0.16", facts=llama(config={"attention_chunk_size": 8192}), neuron_config=raw, **settings)
    assert result.errors == ()
