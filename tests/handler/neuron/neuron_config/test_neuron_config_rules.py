"""Our table finds each rule on which NeuronConfig raises, with its code and the name that the user wrote."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from handler.neuron.neuron_config.class_rules import CLASS_RULES
from tests.handler.neuron.neuron_plans import found, llama, outcome

BATCH: dict[str, Any] = {"max_num_seqs": 4}
CHUNKED = {"chunked_prefill_config": {"max_num_seqs": 4}}
Case = tuple[dict[str, Any], dict[str, Any]]


def case(raw: dict[str, Any] | None = None, **settings: Any) -> Case:
    """Settings beside a raw NeuronConfig."""
    return settings, raw or {}


# code: the setting named, and what breaks the rule
BREAKS: dict[str, tuple[str, Case]] = {
    "unknown-dtype": ("torch_dtype", case({"torch_dtype": "int4"})),
    "unknown-cast-type": ("cast_type", case({"cast_type": "all"})),
    "attention-dtype": ("attention_dtype", case({"attention_dtype": "float32"}, dtype="bfloat16")),
    "context-longer-than-length": ("max_context_length", case(max_context_length=4096, max_model_len=2048)),
    "empty-buckets": ("token_generation_batches", case({"token_generation_batches": []})),
    "context-bucket-too-long": (
        "context_encoding_buckets",
        case(context_encoding_buckets=(512, 2048), max_model_len=1024),
    ),
    "token-bucket-too-long": (
        "token_generation_buckets",
        case(token_generation_buckets=(512, 2048), max_model_len=1024),
    ),
    "token-batch-too-large": ("token_generation_batches", case({"token_generation_batches": [2, 8]}, **BATCH)),
    "batch-buckets-alone": (
        "token_generation_batches",
        case({"token_generation_batches": [2]}, **BATCH, enable_prefix_caching=True),
    ),
    "chunked-attention": ("enable_prefix_caching", case(**BATCH, enable_prefix_caching=True, max_model_len=16384)),
    "quantized-without-path": ("quantized_checkpoints_path", case(quantization="int8")),
    "quantized-qkv-kernel": (
        "modules_to_not_convert",
        case(quantization="fp8", quantized_checkpoints_path="/q", qkv_kernel_enabled=True),
    ),
    "activation-quantization-type": ("activation_quantization_type", case({"activation_quantization_type": "DYNAMIC"})),
    "activation-quantization-kernels": (
        "activation_quantization_type",
        case({"activation_quantization_type": "dynamic"}, mlp_kernel_enabled=True),
    ),
    "rmsnorm-quantize": ("rmsnorm_quantize_kernel_enabled", case({"rmsnorm_quantize_kernel_enabled": True})),
    "full-model-shuffled": ("is_full_model_shuffled", case({"is_full_model_shuffled": True})),
    "medusa-async": ("async_mode", case({"is_medusa": True}, async_mode=True)),
    "chunked-without-blocks": ("is_block_kv_layout", case({**CHUNKED, "is_block_kv_layout": False}, line="nxdi-0.13")),
    "chunked-batch": (
        "batch_size",
        case({"chunked_prefill_config": {"tkg_model_enabled": False}, "batch_size": 2}, line="nxdi-0.13"),
    ),
    "tp-by-cp": ("cp_degree", case({"cp_degree": 3}, tensor_parallel_size=8)),
    "tp-by-dp": ("attention_dp_degree", case({"attention_dp_degree": 3}, tensor_parallel_size=8, max_num_seqs=6)),
    "batch-by-dp": ("attention_dp_degree", case({"attention_dp_degree": 4}, tensor_parallel_size=8, max_num_seqs=6)),
    "dp-continuous-batching": (
        "is_continuous_batching",
        case({"attention_dp_degree": 2, "is_continuous_batching": False}, **BATCH, tensor_parallel_size=8),
    ),
    "dp-above-cp": (
        "attention_dp_degree",
        case({"attention_dp_degree": 4, "cp_degree": 2}, **BATCH, tensor_parallel_size=8),
    ),
    "mlp-cp-sequence-parallel": ("sequence_parallel_enabled", case({"mlp_cp_degree": 2})),
    "strided-context-parallel": (
        "strided_context_parallel_kernel_enabled",
        case({"strided_context_parallel_kernel_enabled": True}),
    ),
    "rs-ag-batch": ("ep_dispatch_cc_option", case({"ep_dispatch_cc_option": "RS_AG"}, **BATCH, tensor_parallel_size=8)),
    "cte-kernel-parts": (
        "attn_block_cte_nki_kernel_enabled",
        case({"attn_block_cte_nki_kernel_enabled": True}, qkv_kernel_enabled=True),
    ),
    "block-kernel-qkv": ("attn_block_tkg_nki_kernel_enabled", case({"attn_block_tkg_nki_kernel_enabled": True})),
    "block-kernel-parts": (
        "attn_block_tkg_nki_kernel_cascaded_attention",
        case({"attn_block_tkg_nki_kernel_cascaded_attention": True}),
    ),
    "block-kernel-alone": (
        "attn_block_tkg_nki_kernel_enabled",
        case({"attn_block_tkg_nki_kernel_enabled": True, "flash_decoding_enabled": True}, qkv_kernel_enabled=True),
    ),
    "fuse-rope": (
        "qkv_cte_nki_kernel_fuse_rope",
        case({"qkv_cte_nki_kernel_fuse_rope": True}, qkv_kernel_enabled=True),
    ),
    "transposed-k-cache": (
        "k_cache_transposed",
        case({"k_cache_transposed": True}, **BATCH, enable_prefix_caching=True),
    ),
    "dp-cache-update": (
        "attn_block_tkg_nki_kernel_cache_update",
        case(
            {
                "attention_dp_degree": 2,
                "attn_block_tkg_nki_kernel_enabled": True,
                "attn_block_tkg_nki_kernel_cache_update": True,
            },
            **BATCH,
            tensor_parallel_size=8,
            qkv_kernel_enabled=True,
        ),
    ),
}


def test_the_table_has_every_rule_of_the_class() -> None:
    """Those of the plugin and of the models are in tests/model_packaging/test_nxdi_refusals.py."""
    assert set(BREAKS) == {rule.code for rule in CLASS_RULES}


@pytest.mark.parametrize("code", BREAKS)
def test_a_broken_rule_is_found_with_a_fix_that_works(code: str) -> None:
    setting, (settings, raw) = BREAKS[code]
    facts = llama(config={"attention_chunk_size": 8192})
    result = outcome(**{"line": "nxdi-0.16", "facts": facts, "neuron_config": raw, **settings})
    finding = found(result, code)
    assert result.plan is None
    assert finding.severity is Severity.ERROR
    assert finding.setting == setting
    assert finding.why
    assert finding.fix


HOLDS: dict[str, Case] = {
    "attention-dtype": case({"attention_dtype": "float32", "cast_type": "as-declared"}),
    "context-longer-than-length": case(max_context_length=1024, max_model_len=2048),
    "context-bucket-too-long": case(context_encoding_buckets=(512, 1024), max_model_len=1024),
    "token-bucket-too-long": case(token_generation_buckets=(512, 1024), max_model_len=1024),
    "token-batch-too-large": case({"token_generation_batches": [2, 4]}, **BATCH),
    "quantized-without-path": case(quantization="int8", quantized_checkpoints_path="/q"),
    "quantized-qkv-kernel": case(
        quantization="fp8",
        quantized_checkpoints_path="/q",
        qkv_kernel_enabled=True,
        fused_qkv=True,
        modules_to_not_convert=("lm_head",),
    ),
    "medusa-async": case({"is_medusa": True}),
    "tp-by-cp": case({"cp_degree": 4}, tensor_parallel_size=8),
    "dp-above-cp": case({"attention_dp_degree": 2, "cp_degree": 4}, **BATCH, tensor_parallel_size=8),
    "mlp-cp-sequence-parallel": case({"mlp_cp_degree": 2}, sequence_parallel_enabled=True),
    "rmsnorm-quantize": case(
        {"rmsnorm_quantize_kernel_enabled": True}, quantized_mlp_kernel_enabled=True, mlp_kernel_enabled=True
    ),
    "cte-kernel-parts": case(
        {"attn_block_cte_nki_kernel_enabled": True, "qkv_nki_kernel_enabled": True, "out_proj_kernel_enabled": True},
        qkv_kernel_enabled=True,
        fused_qkv=True,
    ),
    "chunked-attention": case(**BATCH, enable_prefix_caching=True, max_model_len=8192),
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
