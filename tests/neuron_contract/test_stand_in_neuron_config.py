"""NeuronConfig's rules, and what it takes in silence."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from neuron_stand_in.nxdi.buckets import bucket_for, context_buckets, token_buckets
from neuron_stand_in.nxdi.neuron_config import build_neuron_config


def build(environment: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    return build_neuron_config({"seq_len": 1024, "batch_size": 4, "tp_degree": 8, **given}, environment or {})


BROKEN = [
    {"torch_dtype": "float8"},
    {"attention_dtype": "float32"},
    {"cast_type": "as-written"},
    {"max_context_length": 2048},
    {"max_context_length": 512, "context_encoding_buckets": [128, 1024]},
    {"token_generation_buckets": [2048]},
    {"token_generation_batches": [8]},
    {"quantized": True},
    {"quantized": True, "quantized_checkpoints_path": "/q", "qkv_kernel_enabled": True},
    {"is_medusa": True, "async_mode": True},
    {"chunked_prefill_config": {}},
    {"cp_degree": 3},
    {"attention_dp_degree": 3},
    {"attention_dp_degree": 8, "is_continuous_batching": True},
    {"attention_dp_degree": 2},
    {"attention_dp_degree": 4, "cp_degree": 2, "is_continuous_batching": True},
    {"token_generation_batches": [2], "speculation_length": 4},
    {"token_generation_batches": [2], "is_prefix_caching": True},
    {"token_generation_batches": [2], "is_block_kv_layout": True},
    {"attn_block_cte_nki_kernel_enabled": True},
    {"mlp_cp_degree": 2},
    {"qkv_cte_nki_kernel_fuse_rope": True, "qkv_kernel_enabled": True},
    {"attn_block_tkg_nki_kernel_cache_update": True},
    {"attn_block_tkg_nki_kernel_cascaded_attention": True},
    {"strided_context_parallel_kernel_enabled": True},
    {"k_cache_transposed": True, "is_block_kv_layout": True},
    {"k_cache_transposed": True, "flash_decoding_enabled": True},
    {"rmsnorm_quantize_kernel_enabled": True},
    {"activation_quantization_type": "DYNAMIC"},
    {"ep_dispatch_cc_option": "RS_AG"},
]


@pytest.mark.parametrize("given", BROKEN, ids=lambda given: ",".join(given))
def test_a_broken_rule_raises(given: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        build(**given)


KEPT = [
    {"attention_dtype": "float32", "cast_type": "as-declared"},
    {"max_context_length": 512, "context_encoding_buckets": [512, 128]},
    {"quantized": True, "quantized_checkpoints_path": "/q"},
    {"quantized_mlp_kernel_enabled": True},  # without mlp_kernel_enabled, whatever the guide says
    {"cp_degree": 4},
    {"attention_dp_degree": 2, "is_continuous_batching": True},
    {"token_generation_batches": [2, 4]},
    {"ep_dispatch_cc_option": "RS_AG", "batch_size": 8},
]


@pytest.mark.parametrize("given", KEPT, ids=lambda given: ",".join(given))
def test_a_kept_rule_does_not(given: dict[str, Any]) -> None:
    assert build(**given)["seq_len"] == 1024


def test_an_unknown_key_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = build(tensor_parallel_degree=2)
    assert "tensor_parallel_degree" in caplog.text
    assert "tensor_parallel_degree" not in made


def test_an_unknown_sampling_key_vanishes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = build(on_device_sampling_config={"dynamic": True, "global_top_k": 8})
    assert made["on_device_sampling_config"]["global_topk"] == 256
    assert "global_top_k" not in caplog.text


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        ({}, {}, 1),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}, {}, 1),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}, {}, 2),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}, {}, 2),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}, {"logical_nc_config": 1}, 1),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, {"logical_nc_config": 2}, 1),
    ],
)
def test_lnc_is_the_environment_over_the_config_over_the_platform(
    environment: dict[str, str], given: dict[str, int], expected: int
) -> None:
    assert build(environment, **given)["logical_nc_config"] == expected


def test_buckets_are_powers_of_two_from_128() -> None:
    assert context_buckets(build(enable_bucketing=True)) == [128, 256, 512, 1024]
    assert context_buckets(build(enable_bucketing=True, max_context_length=1000))[-1] == 1000
    assert token_buckets(build(enable_bucketing=False)) == [1024]


def test_prefix_caching_starts_at_512_and_wants_prefix_buckets() -> None:
    assert context_buckets(build(enable_bucketing=True, is_prefix_caching=True)) == [512, 1024]
    with pytest.raises(TypeError, match="NoneType"):
        context_buckets(build(enable_bucketing=True, is_prefix_caching=True, context_encoding_buckets=[512]))


def test_a_length_over_the_largest_bucket_has_no_graph() -> None:
    assert bucket_for(127, 0, [128, 256], "prefill") == 128
    assert bucket_for(256, 0, [128, 256], "prefill") == 256
    with pytest.raises(ValueError, match="exceeds largest bucket"):
        bucket_for(257, 0, [128, 256], "prefill")


def test_speculated_tokens_must_fit_as_well() -> None:
    assert bucket_for(252, 4, [128, 256], "decode") == 256
    with pytest.raises(ValueError, match="exceeds largest bucket"):
        bucket_for(253, 4, [128, 256], "decode")
