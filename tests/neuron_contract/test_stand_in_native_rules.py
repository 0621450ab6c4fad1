"""What the native plugin does not start with: each fact of its rules, with the place and the kind of error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from neuron_stand_in.native.configuration import NativeConfiguration
from neuron_stand_in.native.native_rules import RULES, Place, enforce, refusal
from neuron_stand_in.native.prefill_buckets import compiled_buckets, padded
from neuron_stand_in.native.read_keys import ignored

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
STARTS = NativeConfiguration(max_model_len=4096, tensor_parallel_size=8, model=LLAMA)
CONSUMER = {"kv_role": "kv_both"}
NIXL = {"kv_connector": "NeuronNixlConnector", "kv_buffer_device": "cuda"}
SPREAD = {"decode_context_parallel_size": 2, "kv_transfer_config": NIXL}
CPU: dict[str, Any] = {"on_device_sampling_config": None}
SINGLE: dict[str, Any] = {"max_num_batched_tokens": 4096, "prefix_caching": False}


def neuron(**keys: Any) -> dict[str, Any]:
    return {"additional": {"neuron_config": keys}}


def args(**given: Any) -> dict[str, Any]:
    return {"args": given}


def model(**given: Any) -> dict[str, Any]:
    return {"model": {**LLAMA, **given}}


def compressed(**group: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], **group}}}


COMPRESSED = compressed(weights={"num_bits": 8})
CACHE = compressed(targets=["LlamaAttention"], input_activations={"num_bits": 8})
# rule -> what breaks it.
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("buckets", {"max_model_len": 2048}),  # prefix caching without segments: vLLM's own defaults
    ("buckets", {"max_num_batched_tokens": 3000}),
    ("buckets", {"max_model_len": 32768, "max_num_batched_tokens": 32768, "prefix_caching": False}),
    ("buckets", {**SINGLE, **neuron(num_batched_tokens_buckets=[])}),
    ("buckets", {**SINGLE, **neuron(num_batched_tokens_buckets=[4096, 2048])}),
    ("buckets", {**SINGLE, **neuron(num_batched_tokens_buckets=[1024, 2048])}),
    ("buckets", neuron(num_batched_tokens_buckets=[1024, 2048])),
    ("buckets", neuron(kv_segment_size_buckets=[1024, 2048])),
    ("buckets", neuron(kv_segment_size_buckets=None)),
    ("buckets", neuron(num_seqs_buckets=[1, 8])),
    ("buckets", neuron(decode_context_length_buckets=[1024, 4096])),
    ("scheduled-tokens", neuron(kv_segment_size_buckets=[512])),
    ("async-on-cpu", neuron(**CPU)),
    ("structured-async", neuron(enable_structured_outputs=True)),
    ("structured-outputs-kind", neuron(enable_structured_outputs="true")),
    ("expert-parallelism", neuron(ep_degree=4)),
    ("degrees", neuron(mlp_dp_size=0)),
    ("component-parallelism", neuron(attention_dp_size=2)),
    (
        "component-parallelism",
        {**neuron(lm_head_dp_size=2), **args(kv_transfer_config={"kv_role": "kv_producer"}, data_parallel_size=2)},
    ),
    ("groups", {**neuron(attention_dp_size=3), **args(kv_transfer_config=CONSUMER, data_parallel_size=4)}),
    ("groups", neuron(on_device_sampling_config={"sampling_dp_degree": 3})),
    ("rotary-embedding", model(rope_scaling={"type": "linear", "factor": 4.0})),
    ("policy", args(scheduling_policy="priority")),
    ("kv-cache-dtype", args(kv_cache_dtype="fp8_e5m2")),
    ("classify", args(runner="pooling", convert="classify")),
    ("pooling-fp8", {**args(runner="pooling", kv_cache_dtype="fp8"), "async_scheduling": False}),
    ("speculation", args(speculative_config={"method": "dflash"})),
    ("eager", args(enforce_eager=True)),
    ("visible-cores", {"environment": {"NEURON_RT_VISIBLE_CORES": "0-7"}}),
    ("visible-devices", {"environment": {"NEURON_VISIBLE_DEVICES": "0-2"}}),
    ("visible-devices", {"environment": {"NEURON_VISIBLE_DEVICES": "0-7"}, **args(data_parallel_size=2)}),
    ("visible-devices", {"environment": {"NEURON_VISIBLE_DEVICES": "0-7,8-15"}, **args(data_parallel_size=2)}),
    ("visible-devices", args(device_ids=[0, 1])),
    ("v2-runner", {"environment": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}),
    ("compressed-weights", model(quantization_config=COMPRESSED)),
    ("compressed-weights", model(quantization_config=compressed(output_activations={"num_bits": 8}))),
    ("compressed-weights", model(quantization_config=compressed(input_activations={"num_bits": 8}))),
    ("model-quantization", {**neuron(quantization="fp8"), **model(architectures=["Qwen3ForCausalLM"])}),
    ("quantization-method", model(quantization_config={"quant_method": "mxfp4"})),
    ("decode-context-parallelism", args(decode_context_parallel_size=2)),
    (
        "decode-context-parallelism",
        {
            **args(decode_context_parallel_size=2, kv_transfer_config={"kv_connector": "NixlConnector"}),
            "tensor_parallel_size": 32,
        },
    ),
    ("interleave", {**args(**SPREAD), "tensor_parallel_size": 16}),
    ("interleave", {**args(**SPREAD, dcp_kv_cache_interleave_size=32), "tensor_parallel_size": 16}),
    ("kv-buffer", args(kv_transfer_config={"kv_connector": "NeuronNixlConnector"})),
    ("kv-buffer", args(kv_transfer_config={**NIXL, "kv_buffer_device": "cpu"})),
    ("model", model(architectures=["MixtralForCausalLM"])),
    ("mxfp4", neuron(quantization="mxfp4")),
    ("lora", args(enable_lora=True)),
    ("sleep-mode", args(enable_sleep_mode=True)),
    ("experts", args(enable_expert_parallel=True)),
    ("kv-offload", args(kv_offloading_size=4.0)),
    ("cpu-compile-target", {"environment": {"VLLM_NEURON_CPU_COMPILE": "1"}}),
    (
        "cpu-compile-speculation",
        {
            "environment": {"VLLM_NEURON_CPU_COMPILE": "1", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"},
            **args(speculative_config={"method": "eagle3"}),
        },
    ),
    ("pipeline-parallelism", args(pipeline_parallel_size=2)),
    ("tokens-and-sequences", {"max_num_seqs": 4096}),
    ("tokens-without-chunks", {"chunked_prefill": False}),
    ("heads", {"tensor_parallel_size": 24}),
    ("length-of-model", {"max_model_len": 200_000}),
]


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=lambda part: part if isinstance(part, str) else "")
def test_a_broken_rule_is_refused_in_its_place_with_its_error(rule: str, change: dict[str, Any]) -> None:
    found = refusal(replace(STARTS, **change))
    assert found is not None
    (expected,) = [one for one in RULES if one.name == rule]
    assert (found.rule, found.place, found.error) == (rule, expected.place, expected.error)
    with pytest.raises(expected.error):
        enforce(replace(STARTS, **change), expected.place)


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _ in BROKEN} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    "change",
    [
        {},
        SINGLE,
        {"prefix_caching": False},
        {"async_scheduling": False, **neuron(**CPU)},
        {"async_scheduling": False, **neuron(enable_structured_outputs=True)},
        {"max_num_batched_tokens": 512, **neuron(kv_segment_size_buckets=[512], num_batched_tokens_buckets=[512])},
        {"max_num_seqs": 8, **neuron(num_seqs_buckets=[1, 8], decode_context_length_buckets=[128, 1024])},
        {**neuron(attention_dp_size=2), **args(kv_transfer_config=CONSUMER, data_parallel_size=2)},
        neuron(on_device_sampling_config={"sampling_dp_degree": 4}),
        neuron(on_device_sampling_config={"sampling_dp_degree": "4"}),
        model(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        {**args(decode_context_parallel_size=2), "tensor_parallel_size": 16},
        {**args(**SPREAD, cp_kv_cache_interleave_size=32), "tensor_parallel_size": 16},
        {**neuron(quantization="mxfp8"), **model(quantization_config=COMPRESSED)},
        model(quantization_config=CACHE),
        args(speculative_config={"method": "eagle3"}, distributed_executor_backend="ray"),
        {"environment": {"NEURON_VISIBLE_DEVICES": "0-7"}},
        {"environment": {"NEURON_VISIBLE_DEVICES": "0-3,8-11"}},
        {"environment": {"NEURON_VISIBLE_DEVICES": "0-15"}, **args(data_parallel_size=2)},
        args(device_ids=[*range(8)]),
    ],
)
def test_what_keeps_the_rules_starts(change: dict[str, Any]) -> None:
    assert refusal(replace(STARTS, **change)) is None


def test_the_buckets_that_are_compiled() -> None:
    segmented = compiled_buckets(replace(STARTS, max_num_seqs=6))
    assert (segmented.segment, segmented.tokens, segmented.sequences) == (2048, (2048,), (1, 2, 4, 6))
    whole = compiled_buckets(replace(STARTS, max_num_batched_tokens=8192, prefix_caching=False))
    assert (whole.segment, whole.tokens) == (None, (128, 256, 512, 1024, 2048, 4096))


@pytest.mark.parametrize(("count", "computed"), [(1, 128), (128, 128), (129, 256), (3000, 4096)])
def test_a_prompt_is_padded_to_its_bucket(count: int, computed: int) -> None:
    whole = compiled_buckets(replace(STARTS, max_num_batched_tokens=8192, prefix_caching=False))
    assert padded(count, whole.tokens) == computed


def test_unknown_keys_are_dropped_without_a_word() -> None:
    given = {
        "max_prompt_length": 1,
        "neuron_config": {"tp_degree": 8, "on_device_sampling_config": {"temperature": "0", "all_greedy": True}},
    }
    assert refusal(replace(STARTS, additional=given)) is None
    assert list(ignored(given)) == [
        "max_prompt_length",
        "neuron_config.tp_degree",
        "on_device_sampling_config.temperature",
    ]


def test_sampling_is_on_the_device_unless_it_is_null() -> None:
    assert STARTS.on_device
    assert replace(STARTS, **neuron(on_device_sampling_config={})).on_device
    assert not replace(STARTS, **neuron(**CPU)).on_device
    assert refusal(replace(STARTS, **neuron(**CPU)), Place.PARSER, Place.PLATFORM) is None
