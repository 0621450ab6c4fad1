"""What vLLM on a CPU does not start with: each was seen as a start that failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from handler.config.loading.config_loader import load
from handler.json_value import Json
from handler.neuron.hardware.current_machine import SPACE, HostCpu, numa_nodes
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import found, llama, outcome

VERSIONS = ("0.16.0", "0.24.0", "0.29.0", "0.32.0")
ENGINES = {"SM_VLLM_DATA_PARALLEL_SIZE": "2"}
AVX2, AVX512, AMX = (frozenset(flags.split()) for flags in ("avx2", "avx2 avx512f", "avx2 avx512f amx_tile"))


@pytest.mark.parametrize(
    ("nodes", "ranks", "variables", "starts"),
    [
        (1, 2, {}, False),
        (2, 2, {}, True),
        (0, 2, {}, True),
        (1, 1, {}, True),
        (1, 2, {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}, True),
        (1, 2, {"VLLM_CPU_OMP_THREADS_BIND": "0-1|2-3"}, True),
        (1, 2, {"VLLM_CPU_SIM_MULTI_NUMA": "1"}, True),
        (1, 2, {"SM_VLLM_NNODES": "2"}, True),
        (1, 4, {"SM_VLLM_NNODES": "2"}, False),
        (1, 1, ENGINES, False),
        (2, 1, ENGINES, True),
        (1, 1, {**ENGINES, "SM_VLLM_DATA_PARALLEL_RANK": "0"}, True),
        (1, 1, {**ENGINES, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}, True),
    ],
)
@pytest.mark.parametrize("version", ["0.11.0", *VERSIONS])
def test_each_rank_has_a_numa_node(
    version: str, nodes: int, ranks: int, variables: dict[str, str], starts: bool
) -> None:
    shape = {"SM_VLLM_MAX_MODEL_LEN": "512", "SM_VLLM_TENSOR_PARALLEL_SIZE": str(ranks), "ENDPOINT_LINE": "cpu"}
    machine = HostCpu(frozenset({"avx512f"}), 64 << 30, 64 << 30, nodes)
    made = make_plan(load({**shape, **variables}), llama(), None, installed={"vllm": version}, cpu=machine)
    assert ("cpu-nodes" in {finding.code for finding in made.errors}) is not starts


@pytest.mark.parametrize(("name", "value"), [("async_scheduling", True), ("cpu_offload_gb", 2)])
def test_what_vllm_does_not_use_on_a_cpu_is_a_warning(name: str, value: Json) -> None:
    result = outcome("cpu", facts=llama(), engine_args={name: value})
    assert (result.plan is not None, found(result, "unread-on-cpu").setting) == (True, name)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["decode_context_parallel_size", "prefill_context_parallel_size"])
def test_no_attention_of_a_cpu_shares_a_context(version: str, name: str) -> None:
    """vLLM says so once the model is loaded, and 0.29 says it of prompts before."""
    whole, shared = (
        outcome(
            "cpu",
            facts=llama(kv_heads=4),
            installed={"vllm": version},
            engine_args={"tensor_parallel_size": 8, name: degree},
        )
        for degree in (1, 2)
    )
    assert [finding.setting for finding in shared.errors] == [name]
    assert not whole.errors


@pytest.mark.parametrize(
    ("version", "ranks", "value", "starts"),
    [
        *((version, 1, "xyz", False) for version in ("0.11.0", *VERSIONS)),
        *((version, 1, "0-1,3", True) for version in ("0.11.0", *VERSIONS)),
        ("0.16.0", 1, "0-99", False),
        ("0.29.0", 1, "0-99", True),  # OpenMP ignores such a list
        ("0.16.0", 1, "all", True),
        ("0.29.0", 1, "all", False),
        ("0.16.0", 2, "0-1", False),
        ("0.16.0", 2, "0-1|2-3", True),
        ("0.16.0", 1, "0 - 1", False),
        ("0.16.0", 1, "0-1|99", True),  # the other rank's
        ("0.29.0", 1, "0|1", False),
    ],
)
@pytest.mark.parametrize("kind", ["TENSOR", "DATA"])
def test_threads_are_bound_to_cores_that_are_there(
    version: str, ranks: int, value: str, starts: bool, kind: str
) -> None:
    shape = {"SM_VLLM_MAX_MODEL_LEN": "512", f"SM_VLLM_{kind}_PARALLEL_SIZE": str(ranks), "ENDPOINT_LINE": "cpu"}
    machine = HostCpu(frozenset({"avx512f"}), 64 << 30, 64 << 30, 1, 4)
    settings = load({**shape, "VLLM_CPU_OMP_THREADS_BIND": value})
    made = make_plan(settings, llama(), None, installed={"vllm": version}, cpu=machine)
    assert ("cpu-binding" in {finding.code for finding in made.errors}) is not starts


@pytest.mark.parametrize(
    ("space", "changes", "more", "starts"),
    [
        ("7", {}, {}, False),
        ("8", {}, {}, True),
        ("7", {}, {"max_model_len": 32768}, True),
        ("3", {}, {"tensor_parallel_size": 2}, False),
        ("4", {}, {"tensor_parallel_size": 2}, True),
        ("7", {}, {"engine_args": {"kv_cache_dtype": "fp8_e5m2"}}, True),
        ("7", {"architectures": ("Gemma2ForCausalLM",), "config": {"sliding_window": 4096}}, {}, True),
        ("7", {"architectures": ("OtherForCausalLM",)}, {}, True),
    ],
)
def test_the_cache_of_a_cpu_holds_one_sequence(
    space: str, changes: dict[str, Any], more: dict[str, Any], starts: bool
) -> None:
    """8 GiB: 32 layers, 8 KV heads, 128 numbers of 2 bytes, keys and values, 65,536 tokens."""
    result = outcome("cpu", facts=llama(**changes), **{"max_model_len": 65536, "neuron_env": {SPACE: space}, **more})
    assert ("cpu-cache" not in {finding.code for finding in result.errors}) is starts


def computes(version: str, flags: frozenset[str], stored: dict[str, Json], kind: str = "llama") -> bool:
    config = {"quantization_config": stored} if stored else {}
    facts, machine = llama(config=config, model_type=kind), HostCpu(flags, 64 << 30, 64 << 30, 1)
    settings = load({"SM_VLLM_MAX_MODEL_LEN": "512", "ENDPOINT_LINE": "cpu"})
    made = make_plan(settings, facts, None, installed={"vllm": version}, cpu=machine)
    return "unsupported-model" not in {finding.code for finding in made.errors}


@pytest.mark.parametrize(
    ("version", "flags", "starts"),
    [("0.16.0", AMX, False), ("0.24.0", AVX512, False), ("0.29.0", AMX, True), ("0.32.0", AVX512, False)],
)
def test_blocks_of_fp8_want_amx(version: str, flags: frozenset[str], starts: bool) -> None:
    assert computes(version, flags, {"quant_method": "fp8", "weight_block_size": [128, 128]}) is starts


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_experts_of_gpt_oss_are_not_loaded_by_vllm_0_24(version: str) -> None:
    assert computes(version, AVX512, {}, "gpt_oss") is (version != "0.24.0")
    assert computes(version, AVX512, {"quant_method": "mxfp4"}, "gpt_oss")
    assert computes(version, AVX512, {})


def test_the_numa_nodes_are_those_of_the_cores_that_may_be_used(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    for node, name in ((0, f"cpu{core}"), (1, "cpu100000"), (2, f"cpu{core}")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / name).touch()
    assert numa_nodes(tmp_path) == 2
    assert numa_nodes(tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("stored", "flags", "starts"),
    [
        ({"quant_method": "fp8"}, AVX512, False),
        ({"quant_method": "modelopt"}, AVX512, False),
        ({"quant_method": "awq"}, AVX2, True),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, AVX512, False),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, AVX512, True),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, AVX2, False),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, frozenset({"asimdhp"}), True),
        ({"quant_method": ["fp8"]}, AVX2, True),
        ({"quant_method": "hqq"}, AVX512, False),
        ({"quant_method": "compressed_tensors", "format": "none"}, AVX512, True),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cpu_computes_the_quantized_weights(
    version: str, stored: dict[str, Json], flags: frozenset[str], starts: bool
) -> None:
    assert computes(version, flags, stored) is starts
