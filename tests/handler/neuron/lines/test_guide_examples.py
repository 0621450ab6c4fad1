"""The examples of the guides, given as settings, on the default line: what starts there, and what is said or rejected.

Every fact of the guides is in tests/guides, and each line's own spelling in test_spelling_by_line.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.handler.neuron.neuron_plans import TRN1, TRN2, completed, outcome, planned, starts, warnings

TINY = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
TINY_SETTINGS: dict[str, Any] = {"model": TINY, "max_num_seqs": 4, "max_model_len": 128, "tensor_parallel_size": 32}
TUTORIAL: dict[str, Any] = {
    "model": "/home/ubuntu/models/Llama-3.1-405B-Instruct/",
    "tensor_parallel_size": 64,
    "max_num_seqs": 1,
    "max_model_len": 2048,
    "dtype": "bfloat16",
    "max_context_length": 1024,
}
EAGLE: dict[str, Any] = dict(
    TUTORIAL,
    model="/home/ubuntu/models/llama-3.1-405b-Instruct/",
    speculation="eagle",
    speculative_model="/home/ubuntu/models/EAGLE-llama-3-405b/",
    num_speculative_tokens=6,
    enable_bucketing=True,
    fused_qkv=True,
    sequence_parallel_enabled=True,
    attn_kernel_enabled=True,
    qkv_kernel_enabled=True,
    mlp_kernel_enabled=True,
    neuron_config={
        "cc_pipeline_tiling_factor": 1,
        "on_device_sampling_config": {"dynamic": False, "do_sample": False, "top_k": 1},
        "trace_tokengen_model": False,
    },
    neuron_env={"XLA_DENSE_GATHER_FACTOR": "0", "NEURON_RT_EXEC_TIMEOUT": "600"},
)
BUCKETS: dict[str, Any] = {
    "enable_bucketing": True,
    "context_encoding_buckets": [256, 512, 1024],
    "token_generation_buckets": [32, 64, 128, 256, 512, 768],
    "max_context_length": 1024,
    "seq_len": 1024,
    "batch_size": 1,
    "ctx_batch_size": 1,
    "tkg_batch_size": 1,
    "is_continuous_batching": True,
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "user guide: quick start": TINY_SETTINGS,
    "user guide: offline": {
        **TINY_SETTINGS,
        "engine_args": {"additional_config": {"override_neuron_config": {"enable_bucketing": False}}},
    },
    "user guide: online": {**TINY_SETTINGS, "enable_prefix_caching": False, "enable_bucketing": False},
    "user guide: hyphens on the command line": {
        **TINY_SETTINGS,
        "engine_args": {"additional_config": '{"override-neuron-config": {"enable_bucketing":false}}'},
    },
    "user guide: buckets": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tensor_parallel_size": 16,
        "max_num_seqs": 1,
        "max_model_len": 1024,
        "engine_args": {"additional_config": {"override-neuron-config": BUCKETS}},
    },
    "405B tutorial: example 1": {
        **TUTORIAL,
        "block_size": 2048,
        "skip_warmup": True,
        "engine_args": {"device": "neuron"},
    },
    "405B tutorial: EAGLE": EAGLE,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_user_guide_starts_on_the_default_line(name: str) -> None:
    plan = planned("nxdi-0.16", **EXAMPLES[name])
    starts(plan)
    assert "device" not in plan.engine_args


def test_the_quick_start_reports_what_the_plan_chose() -> None:
    result = outcome("nxdi-0.16", **TINY_SETTINGS)
    assert completed(result) == {"enable_prefix_caching"}
    assert warnings(result) == []


def test_chunked_prefill_is_rejected_on_the_default_line() -> None:
    result = outcome("nxdi-0.16", **TINY_SETTINGS, block_size=32, neuron_env={"DISABLE_NEURON_CUSTOM_SCHEDULER": "1"})
    (refused,) = result.errors
    assert refused.code == "unsupported-by-line"
    assert refused.setting == "DISABLE_NEURON_CUSTOM_SCHEDULER"
    assert "nxdi-0.13" in refused.fix


def test_nothing_given_still_starts() -> None:
    result = outcome("nxdi-0.16", instance=TRN1)
    assert result.plan is not None
    starts(result.plan)
    assert result.plan.engine_args["tensor_parallel_size"] == 32
    assert completed(result) == {"max_model_len", "max_num_seqs", "tensor_parallel_size", "enable_prefix_caching"}


def test_a_model_that_cannot_be_read_gets_a_degree_that_divides_most_heads() -> None:
    result = outcome("nxdi-0.16", instance=TRN2)
    assert result.plan is not None
    assert result.plan.engine_args["tensor_parallel_size"] == 32
