"""Each example of the five guides, given as settings, gives the engine arguments of its line."""

from __future__ import annotations

from typing import Any

import pytest
from neuron_plans import CHOSEN, GRAMMARS, TRN1, TRN2, completed, outcome, planned, starts, warnings

TINY = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
TINY_SETTINGS: dict[str, Any] = {"model": TINY, "max_num_seqs": 4, "max_model_len": 128, "tensor_parallel_size": 32}
NXD = "neuronx-distributed-inference"
TNX = "transformers-neuronx"
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
EAGLE_OVERRIDE = {
    "max_context_length": 1024,
    "enable_bucketing": True,
    "fused_qkv": True,
    "sequence_parallel_enabled": True,
    "attn_kernel_enabled": True,
    "qkv_kernel_enabled": True,
    "mlp_kernel_enabled": True,
    "cc_pipeline_tiling_factor": 1,
    "on_device_sampling_config": {"dynamic": False, "do_sample": False, "top_k": 1},
    "trace_tokengen_model": False,
}
LLAMA8B = "meta-llama/Meta-Llama-3.1-8B-Instruct"
TNX_ENV = {"VLLM_NEURON_FRAMEWORK": TNX}
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
NO_BLOCKS = {"enable_prefix_caching": False}

EXAMPLES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "user guide: quick start": ("nxdi-0.16", TINY_SETTINGS, {**TINY_SETTINGS, **NO_BLOCKS}, {}),
    "user guide: offline": (
        "nxdi-0.16",
        {
            **TINY_SETTINGS,
            "engine_args": {"additional_config": {"override_neuron_config": {"enable_bucketing": False}}},
        },
        {**TINY_SETTINGS, **NO_BLOCKS, "additional_config": {"override_neuron_config": {"enable_bucketing": False}}},
        {},
    ),
    "user guide: online": (
        "nxdi-0.13",
        {**TINY_SETTINGS, "enable_prefix_caching": False, "enable_bucketing": False},
        {**TINY_SETTINGS, **NO_BLOCKS, "additional_config": {"override_neuron_config": {"enable_bucketing": False}}},
        {},
    ),
    "user guide: hyphens on the command line": (
        "nxdi-0.16",
        {
            **TINY_SETTINGS,
            "engine_args": {"additional_config": '{"override-neuron-config": {"enable_bucketing":false}}'},
        },
        {**TINY_SETTINGS, **NO_BLOCKS, "additional_config": {"override_neuron_config": {"enable_bucketing": False}}},
        {},
    ),
    "user guide: buckets": (
        "nxdi-0.16",
        {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "tensor_parallel_size": 16,
            "max_num_seqs": 1,
            "max_model_len": 1024,
            "engine_args": {"additional_config": {"override-neuron-config": BUCKETS}},
        },
        dict(
            model="meta-llama/Llama-3.1-8B-Instruct",
            tensor_parallel_size=16,
            max_num_seqs=1,
            max_model_len=1024,
            additional_config={"override_neuron_config": BUCKETS},
            **NO_BLOCKS,
        ),
        {},
    ),
    "user guide: chunked prefill (known issue)": (
        "nxdi-0.13",
        {**TINY_SETTINGS, "block_size": 32, "neuron_env": {"DISABLE_NEURON_CUSTOM_SCHEDULER": "1"}},
        {
            **TINY_SETTINGS,
            **NO_BLOCKS,
            "enable_chunked_prefill": True,
            "block_size": 32,
            "num_gpu_blocks_override": 16,
            "max_num_batched_tokens": 128,
            "additional_config": {"override_neuron_config": {"chunked_prefill_config": {"max_num_seqs": 4}}},
        },
        {"DISABLE_NEURON_CUSTOM_SCHEDULER": "1"},
    ),
    "405B tutorial: example 1": (
        "fork-0.7.2",
        {**TUTORIAL, "block_size": 2048, "skip_warmup": True},
        {
            "model": "/home/ubuntu/models/Llama-3.1-405B-Instruct/",
            "tensor_parallel_size": 64,
            "max_num_seqs": 1,
            "max_model_len": 2048,
            "block_size": 2048,
            "dtype": "bfloat16",
            "override_neuron_config": {"max_context_length": 1024, "skip_warmup": True},
            "device": "neuron",
        },
        {"VLLM_NEURON_FRAMEWORK": NXD},
    ),
    "405B tutorial: EAGLE": (
        "fork-0.7.2",
        EAGLE,
        {
            "model": "/home/ubuntu/models/llama-3.1-405b-Instruct/",
            "tensor_parallel_size": 64,
            "max_num_seqs": 1,
            "max_model_len": 2048,
            "block_size": 2048,
            "dtype": "bfloat16",
            "speculative_model": "/home/ubuntu/models/EAGLE-llama-3-405b/",
            "num_speculative_tokens": 6,
            "speculative_max_model_len": 2048,
            "override_neuron_config": {
                **EAGLE_OVERRIDE,
                "enable_eagle_speculation": True,
                "enable_fused_speculation": True,
            },
            "device": "neuron",
        },
        {
            "VLLM_NEURON_FRAMEWORK": NXD,
            "XLA_DENSE_GATHER_FACTOR": "0",
            "NEURON_RT_EXEC_TIMEOUT": "600",
        },
    ),
    "405B tutorial: EAGLE on the plugin": (
        "nxdi-0.16",
        EAGLE,
        dict(
            model="/home/ubuntu/models/llama-3.1-405b-Instruct/",
            tensor_parallel_size=64,
            max_num_seqs=1,
            max_model_len=2048,
            dtype="bfloat16",
            speculative_config={
                "method": "eagle",
                "model": "/home/ubuntu/models/EAGLE-llama-3-405b/",
                "num_speculative_tokens": 6,
            },
            additional_config={"override_neuron_config": EAGLE_OVERRIDE, "max_prompt_length": 1024},
            **NO_BLOCKS,
        ),
        {"XLA_DENSE_GATHER_FACTOR": "0", "NEURON_RT_EXEC_TIMEOUT": "600"},
    ),
    "installation guide: override": (
        "fork-0.9.1",
        {**TINY_SETTINGS, "engine_args": {"override_neuron_config": {"enable_bucketing": False}}},
        {
            **TINY_SETTINGS,
            "block_size": 128,
            "device": "neuron",
            "override_neuron_config": {"enable_bucketing": False},
        },
        {"VLLM_NEURON_FRAMEWORK": NXD},
    ),
    "installation guide: optimum-neuron": (
        "optimum",
        {
            "model": "unsloth/Llama-3.2-1B-Instruct",
            "max_num_seqs": 4,
            "max_model_len": 4096,
            "tensor_parallel_size": 2,
            "engine_args": {"device": "neuron"},
            "neuron_env": {"VLLM_NEURON_FRAMEWORK": "optimum-neuron"},
        },
        {
            "model": "unsloth/Llama-3.2-1B-Instruct",
            "max_num_seqs": 4,
            "max_model_len": 4096,
            "tensor_parallel_size": 2,
            "max_num_batched_tokens": 4100,
        },
        {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
    ),
    "transformers-neuronx: offline": (
        "fork-0.7.2",
        {
            "model": LLAMA8B,
            "max_num_seqs": 8,
            "max_model_len": 128,
            "block_size": 128,
            "tensor_parallel_size": 2,
            "engine_args": {"device": "neuron"},
            "neuron_env": TNX_ENV,
        },
        {
            "model": LLAMA8B,
            "max_num_seqs": 8,
            "max_model_len": 128,
            "block_size": 128,
            "device": "neuron",
            "tensor_parallel_size": 2,
        },
        {},
    ),
    "transformers-neuronx: server": (
        "fork-0.7.2",
        {
            "model": LLAMA8B,
            "tensor_parallel_size": 32,
            "max_num_seqs": 4,
            "max_model_len": 2048,
            "block_size": 8,
            "neuron_env": TNX_ENV,
        },
        {
            "model": LLAMA8B,
            "tensor_parallel_size": 32,
            "max_num_seqs": 4,
            "max_model_len": 2048,
            "block_size": 2048,
            "device": "neuron",
        },
        {},
    ),
    "transformers-neuronx: buckets": (
        "fork-0.7.2",
        {
            "model": LLAMA8B,
            "tensor_parallel_size": 32,
            "max_num_seqs": 4,
            "max_model_len": 1024,
            "context_encoding_buckets": (128, 512, 1024),
            "token_generation_buckets": (512, 1024),
            "neuron_env": TNX_ENV,
        },
        {
            "model": LLAMA8B,
            "tensor_parallel_size": 32,
            "max_num_seqs": 4,
            "max_model_len": 1024,
            "block_size": 1024,
            "device": "neuron",
        },
        {
            "NEURON_CONTEXT_LENGTH_BUCKETS": "128,512,1024",
            "NEURON_TOKEN_GEN_BUCKETS": "512,1024",
        },
    ),
    "transformers-neuronx: override": (
        "fork-0.7.2",
        {
            "model": LLAMA8B,
            "max_num_seqs": 8,
            "max_model_len": 128,
            "block_size": 128,
            "tensor_parallel_size": 32,
            "engine_args": {"override_neuron_config": {"shard_over_sequence": True}},
            "neuron_env": TNX_ENV,
        },
        {
            "model": LLAMA8B,
            "max_num_seqs": 8,
            "max_model_len": 128,
            "block_size": 128,
            "device": "neuron",
            "tensor_parallel_size": 32,
            "override_neuron_config": {"shard_over_sequence": True},
        },
        {},
    ),
    "transformers-neuronx: NEURON_QUANT_DTYPE": (
        "fork-0.7.2",
        {
            "model": TINY,
            "max_num_seqs": 8,
            "max_model_len": 2048,
            "tensor_parallel_size": 2,
            "neuron_env": {**TNX_ENV, "NEURON_QUANT_DTYPE": "s8"},
        },
        {
            "model": TINY,
            "max_num_seqs": 8,
            "max_model_len": 2048,
            "block_size": 2048,
            "device": "neuron",
            "quantization": "neuron_quant",
            "tensor_parallel_size": 2,
        },
        {"NEURON_QUANT_DTYPE": "s8"},
    ),
    "transformers-neuronx: speculation": (
        "fork-0.7.2",
        {
            "model": "meta-llama/Meta-Llama-3.1-70B-Instruct",
            "speculative_model": "meta-llama/Llama-3.2-1B-Instruct",
            "max_model_len": 128,
            "dtype": "bfloat16",
            "max_num_seqs": 4,
            "num_speculative_tokens": 4,
            "tensor_parallel_size": 32,
            "neuron_env": TNX_ENV,
        },
        {
            "model": "meta-llama/Meta-Llama-3.1-70B-Instruct",
            "speculative_model": "meta-llama/Llama-3.2-1B-Instruct",
            "max_model_len": 128,
            "block_size": 128,
            "speculative_max_model_len": 128,
            "dtype": "bfloat16",
            "max_num_seqs": 4,
            "num_speculative_tokens": 4,
            "device": "neuron",
            "tensor_parallel_size": 32,
            "use_v2_block_manager": True,
        },
        {},
    ),
    "proposal (inf2): the default line's shape": (
        "fork-0.7.2",
        {
            "model": "/models/llama",
            "max_num_seqs": 4,
            "max_model_len": 2048,
            "tensor_parallel_size": 2,
            "neuron_env": TNX_ENV,
        },
        {
            "model": "/models/llama",
            "max_num_seqs": 4,
            "max_model_len": 2048,
            "block_size": 2048,
            "tensor_parallel_size": 2,
            "device": "neuron",
        },
        {},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_comes_out_as_its_line_spells_it(name: str) -> None:
    line, settings, args, env = EXAMPLES[name]
    plan = planned(line, **settings)
    chosen = {"nxdi-0.16": CHOSEN, "nxdi-0.13": GRAMMARS}.get(line, {})  # which no guide gives
    assert dict(plan.engine_args) == {**args, **chosen}
    assert dict(plan.env) == env


PORTABLE = [
    name
    for name, (line, settings, _, _) in EXAMPLES.items()
    if line.startswith("nxdi-0.16") or settings in (TUTORIAL, EAGLE) or name.startswith(("user guide: o", "405B"))
]


@pytest.mark.parametrize("name", PORTABLE)
def test_an_example_of_the_user_guide_starts_on_the_default_line(name: str) -> None:
    starts(planned("nxdi-0.16", **EXAMPLES[name][1]))


def test_an_example_of_the_fork_is_typed_as_it_stands_on_the_default_line() -> None:
    typed = {**TUTORIAL, "block_size": 2048, "skip_warmup": True, "engine_args": {"device": "neuron"}}
    plan = planned("nxdi-0.16", **typed)
    starts(plan)
    assert "device" not in plan.engine_args


def test_the_quick_start_reports_what_the_plan_chose() -> None:
    result = outcome("nxdi-0.16", **TINY_SETTINGS)
    assert completed(result) == {"enable_prefix_caching"}
    assert warnings(result) == []


def test_hyphens_are_read_and_warned_of() -> None:
    result = outcome("nxdi-0.16", **EXAMPLES["user guide: buckets"][1])
    assert "hyphenated-override" in warnings(result)


def test_chunked_prefill_is_rejected_on_the_default_line() -> None:
    result = outcome("nxdi-0.16", **EXAMPLES["user guide: chunked prefill (known issue)"][1])
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
