"""What changes a key, and what must not."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.artifacts.identity import key_exclusions
from handler.artifacts.identity.artifact_key import (
    ArtifactKey,
    CompileTarget,
    KeyInputs,
    graph_key,
    settings_digest,
    weights_key,
)
from handler.artifacts.identity.canonical_json import canonical, digest
from handler.artifacts.identity.checkpoint_identity import CheckpointIdentity
from handler.config.dialects.neuron_variables import PASSED_ON
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan

OVERRIDE: dict[str, Json] = {
    "enable_bucketing": True,
    "context_encoding_buckets": [1024, 4096],
    "on_device_sampling_config": {"dynamic": True, "global_topk": 256},
    "quantized": True,
    "quantized_checkpoints_path": "/models/quantized",
    "lora_config": {"max_loras": 2, "lora_ckpt_json": "/models/lora.json"},
}
ARGS: dict[str, Json] = {
    "model": "/opt/ml/model",
    "served_model_name": ["llama"],
    "port": 8080,
    "tensor_parallel_size": 2,
    "max_num_seqs": 4,
    "max_model_len": 4096,
    "block_size": 32,
    "dtype": "bfloat16",
    "additional_config": {"override_neuron_config": OVERRIDE, "max_prompt_length": 4096},
    "speculative_config": {"model": "/models/draft", "num_speculative_tokens": 5, "method": "eagle"},
    "kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_ip": "10.0.0.4"},
    "ec_transfer_config": {"ec_connector": "ECExampleConnector", "ec_role": "ec_both"},
    "kv_events_config": {"enable_kv_cache_events": True, "topic": "kv@10.0.0.4@model"},
}
CHECKPOINT = CheckpointIdentity(
    {"model_type": "llama", "hidden_size": 4096, "_name_or_path": "/somewhere", "rope_scaling": {"factor": 8.0}},
    "5" * 64,
    {"model.safetensors": "blake3:" + "6" * 64},
)
INPUTS = KeyInputs(
    plan=EnginePlan("nxdi-0.16", ARGS, {"NEURON_CC_FLAGS": "-O1 --model-type transformer", "HF_TOKEN": "hf_secret"}),
    versions={"neuronx-cc": "2.25", "vllm": "0.16.0"},
    target=CompileTarget("trn1", 1),
    checkpoint=CHECKPOINT,
    environ={"XLA_HANDLE_SPECIAL_SCALAR": "1", "HOME": "/root"},
    adapters={"sql": CheckpointIdentity({"r": 16}, "7" * 64, {"adapter.safetensors": "blake3:1"})},
    draft=CheckpointIdentity({"hidden_size": 512}, "8" * 64, {"model.safetensors": "blake3:2"}),
    quantized=CheckpointIdentity({"hidden_size": 4096}, "9" * 64, {"model.safetensors": "blake3:3"}),
)


def keys(inputs: KeyInputs) -> tuple[str, str]:
    return graph_key(inputs).digest, weights_key(inputs).digest


def change(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """A copy of a dataclass or mapping in which one thing deep inside is another."""
    if not path:
        return new
    name, *rest = path
    if isinstance(value, Mapping):
        return {**value, name: change(value.get(name), tuple(rest), new)}
    return dataclasses.replace(value, **{name: change(getattr(value, name), tuple(rest), new)})


OVERRIDE_AT = ("plan", "engine_args", "additional_config", "override_neuron_config")

SAME: list[tuple[tuple[str, ...], Any]] = [
    *(
        (("plan", "engine_args", name), "/another" if "path" in name else ["other"])
        for name in key_exclusions.ENGINE_ARGS
    ),
    *((("plan", "env", name), "/another") for name in key_exclusions.ENVIRONMENT),
    *(((*OVERRIDE_AT, name), "/another") for name in key_exclusions.NEURON_CONFIG),
    *((("checkpoint", "config", name), "another") for name in key_exclusions.MODEL_CONFIG),
    ((*OVERRIDE_AT, "lora_config", "lora_ckpt_json"), "/another"),
    (("plan", "engine_args", "speculative_config", "model"), "/another"),
    *((("plan", "engine_args", "kv_transfer_config", name), "10.0.0.77") for name in key_exclusions.TRANSFER),
    *((("plan", "engine_args", "ec_transfer_config", name), "10.0.0.77") for name in key_exclusions.ENCODER_TRANSFER),
    *((("plan", "engine_args", "kv_events_config", name), "tcp://10.0.0.77:5557") for name in key_exclusions.EVENTS),
    (("plan", "engine_args", "tensor_parallel_size"), 2.0),
    (("plan", "engine_args", "quantization"), None),
    # Which the plan itself chooses: artifacts that were compiled before it did are found.
    (("plan", "engine_args", "structured_outputs_config"), {"backend": "xgrammar"}),
    (("plan", "engine_args", "guided_decoding_backend"), "xgrammar"),
    ((*OVERRIDE_AT, "tp_degree"), 2),
    ((*OVERRIDE_AT, "world_size"), 2),
    ((*OVERRIDE_AT, "logical_nc_config"), 1),
    (("plan", "env", "HF_TOKEN"), "hf_other"),
    (("plan", "env", "SOME_API_KEY"), "x"),
    (("plan", "env", "NEURON_CC_FLAGS"), " -O1   --model-type transformer --cache_dir=/x --logfile /y/z --verbose 35"),
    (("environ", "HOME"), "/home/another"),
    (("environ", "XLA_FLAGS"), "--xla_dump_to=/tmp/x"),
    (("checkpoint", "config", "rope_scaling", "factor"), 8),
]

DIFFERENT: list[tuple[tuple[str, ...], Any]] = [
    (("plan", "line"), "nxdi-0.13"),
    (("versions", "neuronx-cc"), "2.26"),
    (("versions", "nki"), "0.1"),
    (("target",), CompileTarget("trn2", 1)),
    (("target",), CompileTarget("trn1", 2)),
    (("target",), CompileTarget("trn1", 1, ("x86_64", "avx2"))),
    (("plan", "engine_args", "tensor_parallel_size"), 4),
    (("plan", "engine_args", "pipeline_parallel_size"), 2),
    (("plan", "engine_args", "max_num_seqs"), 8),
    (("plan", "engine_args", "max_model_len"), 8192),
    (("plan", "engine_args", "block_size"), 64),
    (("plan", "engine_args", "num_gpu_blocks_override"), 512),
    (("plan", "engine_args", "dtype"), "float16"),
    (("plan", "engine_args", "enable_prefix_caching"), True),
    (("plan", "engine_args", "something_new"), 1),
    # Which graphs of which rank the plugin compiles is not documented, so these stay.
    *((("plan", "engine_args", f"data_parallel_{name}"), 1) for name in ("size", "size_local", "rank", "start_rank")),
    (("plan", "engine_args", "ec_transfer_config", "ec_role"), "ec_consumer"),
    (("plan", "engine_args", "speculative_config", "num_speculative_tokens"), 4),
    (("plan", "engine_args", "additional_config", "max_prompt_length"), 2048),
    (("plan", "engine_args", "kv_events_config"), None),
    (("plan", "engine_args", "kv_events_config", "enable_kv_cache_events"), False),
    (("plan", "engine_args", "media_io_kwargs"), {"video": {"num_frames": 4}}),
    ((*OVERRIDE_AT, "enable_bucketing"), False),
    ((*OVERRIDE_AT, "enable_bucketing"), 1),
    ((*OVERRIDE_AT, "context_encoding_buckets"), [4096, 1024]),
    ((*OVERRIDE_AT, "on_device_sampling_config"), None),
    ((*OVERRIDE_AT, "on_device_sampling_config", "global_topk"), 64),
    ((*OVERRIDE_AT, "lora_config", "max_loras"), 3),
    ((*OVERRIDE_AT, "world_size"), 8),
    ((*OVERRIDE_AT, "tp_degree"), 8),
    ((*OVERRIDE_AT, "logical_nc_config"), 2),
    (("plan", "engine_args", "additional_config", "vision_neuron_config"), {"batch_size": 1}),
    (("plan", "env", "NEURON_CC_FLAGS"), "-O2 --model-type transformer"),
    (("plan", "env", "NEURON_CC_FLAGS"), "--model-type transformer -O1"),
    (("plan", "env", "SOMETHING_NEW"), "1"),
    # Settings of the runtime, of debugging and of the warm-up that decide what is compiled, or may.
    *(
        (("plan", "env", name), "1")
        for name in (
            *("NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_RT_STOCHASTIC_ROUNDING_EN", "NEURON_SCRATCHPAD_PAGE_SIZE"),
            *("NEURON_FUSE_SOFTMAX", "NEURON_LIBTORCH_DISABLE_COMPILE_CACHE", "VLLM_NEURON_BACKEND"),
            *("VLLM_NEURON_DEBUG_MODE", "VLLM_NEURON_DISABLE_NKI_KERNELS", "VLLM_NEURON_SKIP_DECODE_WARMUP"),
        )
    ),
    (("environ", "XLA_HANDLE_SPECIAL_SCALAR"), "0"),
    (("environ", "XLA_ANYTHING"), "1"),
    (("environ", "UNSAFE_FP8FNCAST"), "1"),
    (("environ", "XLA_FLAGS"), "--xla_dump_to=/tmp/x --xla_fast_math"),
    (("checkpoint", "config", "hidden_size"), 8192),
    (("checkpoint", "config", "rope_scaling", "factor"), 4.0),
    (("checkpoint", "shape"), "0" * 64),
    (("adapters", "sql", "shape"), "0" * 64),
    (("adapters", "poems"), CheckpointIdentity({}, "0" * 64)),
    (("adapters",), {}),
    (("draft", "shape"), "0" * 64),
    (("draft", "config", "hidden_size"), 256),
    (("draft",), None),
    (("quantized", "shape"), "0" * 64),
]

CONTENT: list[tuple[str, ...]] = [
    ("checkpoint", "content", "model.safetensors"),
    ("checkpoint", "content", "another.safetensors"),
    ("adapters", "sql", "content", "adapter.safetensors"),
    ("draft", "content", "model.safetensors"),
    ("quantized", "content", "model.safetensors"),
]


# What an operator changes on an endpoint that has its artifacts: to find a fault, for another host, or so that it never
# compiles. Their suffixes say it, and a new variable of such a name must be examined.
HOST_ONLY = (
    "_LOG_LEVEL",
    "_LOG_LOCATION",
    "_TIMEOUT",
    "_COMPILE_WORKERS",
    "_CACHE_ROOT",
    "_REMOTE_CACHE",
    "_CACHE_HIT",
)


def name(value: Any) -> str:
    return ".".join(value) if isinstance(value, tuple) else repr(value)[:40]


@pytest.mark.parametrize(("path", "new"), SAME, ids=name)
def test_what_does_not_change_the_graph_does_not_change_a_key(path: tuple[str, ...], new: Any) -> None:
    assert keys(change(INPUTS, path, new)) == keys(INPUTS)


@pytest.mark.parametrize(("path", "new"), DIFFERENT, ids=name)
def test_what_changes_the_graph_changes_both_keys(path: tuple[str, ...], new: Any) -> None:
    graph, weights = keys(INPUTS)
    other_graph, other_weights = keys(change(INPUTS, path, new))
    assert other_graph != graph
    assert other_weights != weights


@given(st.dictionaries(st.sampled_from([*key_exclusions.ENVIRONMENT]), st.text(max_size=8)))
def test_no_excluded_variables_change_a_key_together(variables: dict[str, str]) -> None:
    """In the plan, where an owner's settings are, or in the process's environment."""
    assert keys(change(INPUTS, ("plan", "env"), {**INPUTS.plan.env, **variables})) == keys(INPUTS)
    assert keys(change(INPUTS, ("environ",), {**INPUTS.environ, **variables})) == keys(INPUTS)


@pytest.mark.parametrize("variable", [name for name in PASSED_ON if name.endswith(HOST_ONLY)])
def test_what_only_the_host_notices_does_not_change_a_key(variable: str) -> None:
    assert keys(change(INPUTS, ("plan", "env", variable), "1")) == keys(INPUTS)


@pytest.mark.parametrize(
    "path",
    [
        *(("env", f"VLLM_{variable}") for variable in ("NIXL_SIDE_CHANNEL_HOST", "NIXL_SIDE_CHANNEL_PORT", "HOST_IP")),
        *(("env", variable) for variable in ("GLOO_SOCKET_IFNAME", "NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT")),
        *(("env", f"VLLM_{variable}") for variable in ("RPC_TIMEOUT", "NIXL_ABORT_REQUEST_TIMEOUT")),
        ("engine_args", "device_ids"),
        *(("engine_args", "ec_transfer_config", key) for key in ("ec_ip", "ec_port", "engine_id")),
    ],
    ids=name,
)
def test_a_second_machine_finds_what_the_first_has_compiled(path: tuple[str, ...]) -> None:
    assert keys(change(INPUTS, ("plan", *path), "another")) == keys(INPUTS)


@pytest.mark.parametrize("path", CONTENT, ids=name)
def test_a_fine_tune_of_the_same_shape_shares_the_graph_and_not_the_weights(path: tuple[str, ...]) -> None:
    graph, weights = keys(INPUTS)
    other_graph, other_weights = keys(change(INPUTS, path, "blake3:other"))
    assert other_graph == graph
    assert other_weights != weights


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("plan", "engine_args", "gpu_memory_utilization"), 0.9),
        (("plan", "engine_args", "load_format"), "dummy"),
        (("plan", "engine_args", "speculative_config", "model"), "/models/another"),
        (("plan", "env", "NEURON_LIBTORCH_COMPILATION_TIMEOUT"), "7200"),
        (("plan", "env", "VLLM_CPU_KVCACHE_SPACE"), "8"),
        (("plan", "env", "HF_TOKEN"), "hf_other"),
        (("environ", "VLLM_ENGINE_READY_TIMEOUT_S"), "3600"),
    ],
    ids=name,
)
def test_a_setting_that_is_not_part_of_the_key_is_a_setting_all_the_same(path: tuple[str, ...], new: Any) -> None:
    assert settings_digest(change(INPUTS, path, new)) != settings_digest(INPUTS)


@pytest.mark.parametrize(
    "path",
    [
        ("plan", "engine_args", "master_addr"),
        ("plan", "engine_args", "kv_transfer_config", "kv_ip"),
        ("plan", "engine_args", "kv_events_config", "topic"),
        ("plan", "env", "NEURON_RT_ROOT_COMM_ID"),
        ("plan", "env", "NEURON_RT_VISIBLE_CORES"),
        ("environ", "HOSTNAME"),
    ],
    ids=name,
)
def test_instances_that_differ_in_their_addresses_and_cores_have_the_same_settings(path: tuple[str, ...]) -> None:
    assert settings_digest(change(INPUTS, path, "10.0.0.77")) == settings_digest(INPUTS)


@pytest.mark.parametrize(
    ("line", "blocks", "same"), [("native-0.29", None, False), ("native-0.29", 512, True), ("nxdi-0.16", None, True)]
)
def test_the_share_of_memory_sizes_the_cache_in_a_native_graph(line: str, blocks: int | None, same: bool) -> None:
    inputs = change(INPUTS, ("plan", "line"), line)
    inputs = change(inputs, ("plan", "engine_args", "num_gpu_blocks_override"), blocks)
    other = change(inputs, ("plan", "engine_args", "gpu_memory_utilization"), 0.65)
    assert (keys(inputs) == keys(other)) is same


def test_the_order_of_adapters_is_part_of_the_weights_and_not_of_the_graph() -> None:
    """The shards have them in slots of that order."""
    adapters = {name: CheckpointIdentity({"r": 16}, "7" * 64, {"a.safetensors": f"blake3:{name}"}) for name in "ab"}
    graph, weights = keys(change(INPUTS, ("adapters",), adapters))
    other_graph, other_weights = keys(change(INPUTS, ("adapters",), dict(reversed(adapters.items()))))
    assert graph == other_graph
    assert weights != other_weights


def test_every_change_makes_a_key_of_its_own() -> None:
    made = [graph_key(change(INPUTS, path, new)).digest for path, new in DIFFERENT]
    assert len(set(made)) == len(made)


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(item, chance) for key, item in items}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: shuffled(getattr(value, field.name), chance) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value


@given(st.randoms(use_true_random=False))
def test_no_order_of_any_mapping_changes_a_key(chance: random.Random) -> None:
    assert keys(shuffled(INPUTS, chance)) == keys(INPUTS)


def test_a_key_is_the_digest_of_its_fields_and_holds_neither_secret_nor_path() -> None:
    for key in (graph_key(INPUTS), weights_key(INPUTS)):
        assert isinstance(key, ArtifactKey)
        assert key.digest == digest(key.fields)
        text = canonical(key.fields).decode()
        assert "hf_secret" not in text
        assert "/models" not in text
        assert "/opt/ml" not in text
        assert "/somewhere" not in text


def test_a_long_field_stands_as_its_digest_and_still_counts() -> None:
    long: list[Json] = list(range(500))
    inputs = change(INPUTS, (*OVERRIDE_AT, "token_generation_batches"), long)
    key = graph_key(inputs)
    assert len(canonical(key.fields)) < 4000
    assert "blake3:" in str(key.fields["neuron_config"])
    assert graph_key(change(INPUTS, (*OVERRIDE_AT, "token_generation_batches"), [*long, 1])).digest != key.digest


def test_the_inputs_are_left_as_they_were() -> None:
    before = canonical(dict(INPUTS.plan.engine_args))
    keys(INPUTS)
    assert canonical(dict(INPUTS.plan.engine_args)) == before


def test_the_legacy_fork_has_its_override_among_the_arguments() -> None:
    args: dict[str, Json] = {"override_neuron_config": {"enable_bucketing": False}}
    inputs = change(INPUTS, ("plan", "engine_args"), args)
    assert graph_key(inputs).fields["neuron_config"] == {"enable_bucketing": False}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, 1.0, True),
        (0.0, -0.0, True),
        ((1, 2), [1, 2], True),
        (1, True, False),
        (0, False, False),
        (None, "null", False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        (1e22, 10**22, True),
        (0.1, 0.10000000000000001, True),
        ([0.0, float("inf")], [0, float("inf")], True),
        (float("inf"), float("-inf"), False),
    ],
)
def test_one_spelling_of_each_value(first: object, second: object, same: bool) -> None:
    assert (canonical(first) == canonical(second)) is same


def test_what_has_no_spelling_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical({"x": "\ud800"})


@pytest.mark.parametrize("value", [{1: 2}, {1, 2}, b"x", object()])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        canonical([value])
