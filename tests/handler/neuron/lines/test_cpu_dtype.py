"""The data type of the CPU line, on CPUs with and without 16-bit arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.hardware import current_machine as host_cpu_module
from handler.neuron.hardware.current_machine import HostCpu, cpu_flags
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import found, llama

GIB = 1024**3
SKYLAKE = frozenset({"avx2", "avx512f", "avx512_vnni", "f16c"})
GRAVITON2 = frozenset({"asimd", "asimddp", "fphp", "asimdhp"})
CAPABLE = (SKYLAKE | {"avx512_bf16"}, SKYLAKE | {"amx_bf16"}, GRAVITON2 | {"bf16"})


def made(flags: frozenset[str] | None, facts: dict[str, Any] | None = None, **settings: Any) -> PlanOutcome:
    settings.setdefault("max_model_len", 4096)
    cpu = HostCpu(flags, 256 * GIB, 32 * GIB) if flags is not None else None
    config = EndpointConfig(model="/models/llama", **settings)
    return make_plan(config, llama(**facts or {}), None, line="cpu", cpu=cpu)


def dtype(result: PlanOutcome) -> object:
    assert result.plan is not None, result.errors
    return result.plan.engine_args.get("dtype")


def codes(result: PlanOutcome) -> set[str]:
    return {finding.code for finding in result.findings if finding.code.startswith("dtype-")}


@pytest.mark.parametrize(
    ("settings", "needed"),
    [({"max_model_len": 256}, 3), ({"max_model_len": 257}, 4), ({"max_model_len": 64, "block_size": 16}, 5)],
)
def test_blocks_hold_one_sequence_of_the_whole_context(settings: dict[str, Any], needed: int) -> None:
    assert made(SKYLAKE, num_gpu_blocks_override=needed, **settings).plan is not None
    finding = found(made(SKYLAKE, num_gpu_blocks_override=needed - 1, **settings), "too-few-blocks")
    assert (finding.severity, finding.setting) == (Severity.ERROR, "num_gpu_blocks_override")


@pytest.mark.parametrize("flags", [SKYLAKE, GRAVITON2])
def test_without_bfloat16_arithmetic_a_bfloat16_model_is_float32(flags: frozenset[str]) -> None:
    result = made(flags)
    assert dtype(result) == "float32"
    told = found(result, "dtype-float32")
    assert told.severity is Severity.INFO
    assert "this machine" in told.why
    assert told.fix == "Set SM_VLLM_DTYPE=bfloat16 to keep the checkpoint's."


@pytest.mark.parametrize("flags", [*CAPABLE, None])
def test_with_bfloat16_arithmetic_or_an_unknown_cpu_vllm_chooses(flags: frozenset[str] | None) -> None:
    result = made(flags)
    assert (dtype(result), codes(result)) == (None, set())


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (SKYLAKE, "float32"),
        (SKYLAKE | {"avx512_bf16"}, "float32"),
        (SKYLAKE | {"avx512_fp16"}, None),
        (GRAVITON2, None),
    ],
)
def test_a_float16_model_goes_by_float16_arithmetic(flags: frozenset[str], chosen: str | None) -> None:
    assert dtype(made(flags, {"torch_dtype": "float16"})) == chosen


@pytest.mark.parametrize("stored", ["float32", None])
def test_other_checkpoints_are_left_to_vllm(stored: str | None) -> None:
    assert dtype(made(SKYLAKE, {"torch_dtype": stored})) is None


@pytest.mark.parametrize("name", ["SM_VLLM_DTYPE", "ENDPOINT_DTYPE", "OPTION_DTYPE"])
def test_a_dtype_that_is_set_wins_and_auto_is_none(name: str) -> None:
    cpu = HostCpu(SKYLAKE, 256 * GIB, 256 * GIB)
    for given, chosen in (("bfloat16", "bfloat16"), ("float16", "float16"), ("auto", "float32")):
        config = load({"ENDPOINT_MODEL": str(sample_model.path()), name: given})
        result = make_plan(config, llama(), None, line="cpu", cpu=cpu)
        assert dtype(result) == chosen
        assert codes(result) == ({"dtype-float32"} if given == "auto" else set())


@pytest.mark.parametrize("place", [{}, {"text_config": {}}])
def test_a_quantized_model_keeps_its_type(place: dict[str, Any]) -> None:
    """vLLM's AWQ and FP8 layers refuse float32."""
    config = {"quantization_config": {"quant_method": "awq"}}
    assert dtype(made(SKYLAKE, {"config": {"text_config": config} if place else config})) is None
    assert dtype(made(SKYLAKE, quantization="fp8")) is None


@pytest.mark.parametrize(
    ("cpu", "facts", "said"),
    [
        (HostCpu(SKYLAKE, 32 * GIB, 16 * GIB), {}, "29.9 GiB of 32.0 GiB"),
        (HostCpu(SKYLAKE, 256 * GIB, GIB), {}, "8192 tokens would take 2.0 GiB"),
        (HostCpu(SKYLAKE, 256 * GIB, 16 * GIB), {"weight_bytes": None}, "not known"),
    ],
)
def test_float32_that_may_not_fit_is_a_warning(cpu: HostCpu, facts: dict[str, Any], said: str) -> None:
    config = EndpointConfig(model="/models/llama", max_model_len=8192)
    result = make_plan(config, llama(**facts), None, line="cpu", cpu=cpu)
    assert dtype(result) is None
    told = found(result, "dtype-slow")
    assert told.severity is Severity.WARNING
    assert said in told.why
    assert "SM_VLLM_DTYPE=float32" in told.fix


def test_check_asks_this_machine_unless_the_plan_is_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cpu_module, "cpu_flags", lambda: SKYLAKE)
    here = examine_config(EndpointConfig(model=str(sample_model.path()), line="cpu"))
    assert here.plan is not None
    assert here.plan.engine_args["dtype"] == "float32"
    other = examine_config(EndpointConfig(model=str(sample_model.path()), line="cpu", instance="ml.inf2.xlarge"))
    assert "dtype-float32" not in {finding.code for finding in other.findings}


def test_the_flags_are_linuxs(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16\n\nflags\t\t: other\n")
    (tmp_path / "arm").write_text("processor\t: 0\nFeatures\t: asimd bf16\n")
    (tmp_path / "power").write_text("processor\t: 0\ncpu\t\t: POWER10\n")
    assert cpu_flags(tmp_path / "x86") == {"fpu", "avx512_bf16"}
    assert cpu_flags(tmp_path / "arm") == {"asimd", "bf16"}
    assert cpu_flags(tmp_path / "power") == cpu_flags(tmp_path / "none") == frozenset()


SPACE = "VLLM_CPU_KVCACHE_SPACE"


@pytest.mark.parametrize(
    ("free", "settings", "space"),
    [
        (256, {"max_num_seqs": 16, "max_model_len": 4096}, 8),  # 16 x 4096 tokens
        (256, {"max_num_seqs": 1, "max_model_len": 128}, 1),
        (20, {"max_num_seqs": 16, "max_model_len": 4096}, 5),  # a quarter
        (20, {"max_num_seqs": 16, "max_model_len": 65536}, 8),  # one sequence, which a quarter does not hold
        (256, {"max_model_len": 4096}, 64),  # vLLM's own 128 sequences
        (256, {"max_num_seqs": 16, "max_model_len": 4096, "tensor_parallel_size": 2}, 4),  # for each rank
        (256, {"max_num_seqs": 16, "max_model_len": 4096, "neuron_env": {SPACE: "3"}}, 3),
        (2, {"max_num_seqs": 16, "max_model_len": 4096}, 1),
        (20, {"max_num_seqs": 16, "max_model_len": 4096, "engine_args": {"data_parallel_size": 2}}, 2),  # two caches
    ],
)
def test_the_cache_is_what_the_plan_needs(free: int, settings: dict[str, Any], space: int) -> None:
    cpu = HostCpu(SKYLAKE | {"avx512_bf16"}, 256 * GIB, free * GIB)
    result = make_plan(EndpointConfig(model="/models/llama", **settings), llama(), None, line="cpu", cpu=cpu)
    assert result.plan is not None, result.errors
    assert result.plan.env[SPACE] == str(space)
    told = [finding.why for finding in result.findings if finding.setting == SPACE]
    assert (f"the plan sets it to {space} GiB" in str(told)) is ("neuron_env" not in settings)


def test_a_sequence_for_which_too_little_is_free_is_a_warning() -> None:
    cpu = HostCpu(SKYLAKE | {"avx512_bf16"}, 256 * GIB, 20 * GIB)
    config = EndpointConfig(model="/models/llama", max_model_len=131072)
    told = found(make_plan(config, llama(), None, line="cpu", cpu=cpu), "kv-cache-small")
    assert (told.severity, told.setting) == (Severity.WARNING, "max_model_len")


def test_the_size_of_the_cache_is_a_whole_number() -> None:
    config = EndpointConfig(model="/models/llama", neuron_env={SPACE: "half"})
    assert make_plan(config, llama(), None, line="cpu").errors[0].setting == SPACE


def test_the_bytes_of_a_cache_are_not_what_a_cpu_reads() -> None:
    finding = found(made(SKYLAKE, engine_args={"kv_cache_memory_bytes": 5}), "kv-cache-memory")
    assert (finding.severity, finding.setting) == (Severity.WARNING, "kv_cache_memory_bytes")
    assert "VLLM_CPU_KVCACHE_SPACE holds in its place" in finding.why
