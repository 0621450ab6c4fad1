from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.memory.memory_estimate import estimate
from handler.neuron.memory.memory_findings import memory_findings
from handler.neuron.planning.examination import examine_config
from tests.handler.neuron.published_models import LLAMA_8B, LLAMA_70B, LLAMA_405B, MODELS, SCOUT, published


def findings(model: str, instance: str, **given: Any) -> tuple[Finding, ...]:
    facts = published(model)
    found = estimate(facts, EndpointConfig(model=model, **given), find(instance))
    assert found is not None
    return memory_findings(found, facts)


def test_a_model_that_fits_is_reported_with_its_numbers() -> None:
    (found,) = findings(LLAMA_405B, "trn2.48xlarge", tensor_parallel_size=64, max_model_len=2048, max_num_seqs=1)
    assert (found.code, found.severity) == ("memory-estimate", Severity.INFO)
    assert "24 GiB" in found.why
    assert "weights 12.7" in found.why


def test_a_model_that_needs_more_cores_gets_their_number() -> None:
    (found,) = findings(LLAMA_70B, "trn1.32xlarge", tensor_parallel_size=8, max_model_len=4096, max_num_seqs=4)
    assert (found.code, found.severity) == ("memory-does-not-fit", Severity.ERROR)
    assert found.fix.startswith("Set tensor_parallel_size to 32: that takes about ")


def test_too_many_sequences_get_the_number_that_fits() -> None:
    found = findings(LLAMA_8B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=4096, max_num_seqs=64)[0]
    assert found.code == "memory-does-not-fit"
    assert found.fix.startswith("Lower max_num_seqs to 8: that takes about ")


@pytest.mark.parametrize(
    ("degree", "length", "sequences", "codes"),
    [
        (8, 32_768, 64, ["memory-estimate", "capped-concurrency"]),
        (8, 32_768, 13, ["memory-estimate"]),
        (2, 131_072, 1, ["memory-does-not-fit"]),
        (4, 131_072, 1, ["memory-estimate"]),
        (1, 2048, 1, ["memory-does-not-fit"]),
    ],
)
def test_the_native_plugin_pages_its_cache(degree: int, length: int, sequences: int, codes: list[str]) -> None:
    shape: dict[str, Any] = {"tensor_parallel_size": degree, "max_model_len": length, "max_num_seqs": sequences}
    variables: dict[str, Any] = {"VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION": "0.01"} if degree == 1 else {}
    found = findings(LLAMA_8B, "trn2.48xlarge", line="native-0.29", neuron_env=variables, **shape)
    assert [one.code for one in found] == codes
    if "capped-concurrency" in codes:
        assert "holds 13 sequences of 32768 tokens" in found[1].why
    if length == 131_072 and degree == 2:
        assert "takes 8.00 GiB of KV cache, and it has 6.62" in found[0].why


def test_no_fix_is_refused_by_another_rule() -> None:
    cached = {"line": "nxdi-0.16", "enable_prefix_caching": True, "tensor_parallel_size": 2}
    found = findings(LLAMA_8B, "inf2.xlarge", max_model_len=32_768, max_num_seqs=2, **cached)[0]
    assert "max_num_seqs to 1" not in found.fix, "prefix caching with one sequence gives wrong output"
    one_chip = {"line": "fork-0.9.1-tnx", "max_model_len": 2048, "max_num_seqs": 1}
    assert "trn2" not in findings(LLAMA_405B, "trn1.32xlarge", **one_chip)[0].fix, "the line does not run there"
    engines = {"engine_args": {"data_parallel_size": 8}, "tensor_parallel_size": 8, "line": "native-0.29"}
    many = findings(LLAMA_70B, "trn2.48xlarge", max_model_len=131_072, max_num_seqs=64, **engines)[0]
    assert "Set tensor_parallel_size" not in many.fix, "all 64 cores are in use"


def test_dbrx_names_its_shape_in_parts() -> None:
    ffn: dict[str, Json] = {"moe_num_experts": 16, "moe_top_k": 4, "ffn_hidden_size": 10752}
    parts: dict[str, Json] = {"attn_config": {"kv_n_heads": 8}, "ffn_config": ffn}
    plain: dict[str, Json] = {
        "model_type": "dbrx",
        "d_model": 6144,
        "n_heads": 48,
        "n_layers": 40,
        "max_seq_len": 32768,
    }
    facts = facts_from({**plain, **parts}, "/models/dbrx", True)
    assert (facts.heads, facts.kv_heads, facts.experts, facts.experts_per_token) == (48, 8, 16, 4)
    assert (facts.expert_intermediate_size, facts.longest) == (10752, 32768)


def test_what_is_tight_is_a_warning() -> None:
    found = findings(LLAMA_8B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=4096, max_num_seqs=20)[0]
    assert (found.code, found.severity) == ("memory-tight", Severity.WARNING)
    assert found.fix.startswith("Lower max_num_seqs to 10")


def test_a_model_that_is_too_large_gets_an_instance_that_holds_it() -> None:
    found = findings(LLAMA_405B, "trn1.32xlarge", max_model_len=2048, max_num_seqs=1)[0]
    assert found.fix.startswith("Use ml.trn2.48xlarge with tensor_parallel_size 64: that takes about 1")


def test_a_model_that_fits_on_no_instance_is_reported() -> None:
    found = findings(LLAMA_405B, "trn2.48xlarge", dtype="float32", max_model_len=131072, max_num_seqs=1)[0]
    assert found.severity is Severity.ERROR
    assert "no other degree" in found.fix


MIXTRAL_8X7B: dict[str, Any] = MODELS["mistralai/Mixtral-8x7B-Instruct-v0.1"]["config"]
MIXTRAL_8X22B = {**MIXTRAL_8X7B, "hidden_size": 6144, "intermediate_size": 16384, "num_attention_heads": 48}
MIXTRAL_8X22B["num_hidden_layers"] = 56
QWEN_14B = {**MODELS["Qwen/Qwen3-32B"]["config"], "num_hidden_layers": 40, "num_attention_heads": 40}
NATIVE = {"line": "native-0.29", "tensor_parallel_size": 8}
LITTLE = {"max_model_len": 40960, "engine_args": {"gpu_memory_utilization": 0.2}}


@pytest.mark.parametrize(
    ("model", "instance", "given", "fix"),
    [
        # 24 does not divide the width.
        (MIXTRAL_8X7B, "inf2.48xlarge", {"max_num_seqs": 64, "tensor_parallel_size": 8}, "Lower max_num_seqs to "),
        (MIXTRAL_8X22B, "inf2.48xlarge", {}, "Use ml.trn2.48xlarge with tensor_parallel_size 32"),
        (MIXTRAL_8X22B, "trn1.32xlarge", {"max_num_seqs": 32}, "Use ml.trn2.48xlarge with tensor_parallel_size 32"),
        # 16 and more do not divide the 40 heads.
        (QWEN_14B, "trn2.48xlarge", {**NATIVE, **LITTLE}, "Use more cores or a shorter"),
    ],
)
def test_the_change_is_one_that_the_model_can_have(
    model: dict[str, Any], instance: str, given: dict[str, Any], fix: str
) -> None:
    facts, shape = facts_from(model, "m", False), {"max_model_len": 4096, "max_num_seqs": 32, **given}
    estimated = estimate(facts, EndpointConfig(model="m", **shape), find(instance))
    assert estimated is not None
    found = memory_findings(estimated, facts)[0]
    assert found.fix.startswith(fix)


def test_a_host_that_cannot_load_it_is_a_finding_of_its_own() -> None:
    _, host = findings(LLAMA_8B, "inf2.xlarge", tensor_parallel_size=2, max_model_len=2048, max_num_seqs=1)
    assert (host.code, host.severity) == ("host-memory", Severity.WARNING)
    assert "16 GiB of host memory" in host.why
    assert len(findings(LLAMA_8B, "inf2.8xlarge", tensor_parallel_size=2, max_model_len=2048, max_num_seqs=1)) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"enable_prefix_caching": True, "num_gpu_blocks_override": 200_000},
        {"neuron_config": {"is_prefix_caching": True, "is_block_kv_layout": True, "pa_num_blocks": 200_000}},
        {"line": "native-0.29", "num_gpu_blocks_override": 2_000_000},
        {"line": "native-0.29", "num_gpu_blocks_override": 64},
    ],
)
def test_a_number_of_blocks_is_allocated_whole_and_named(given: dict[str, Any]) -> None:
    """A block of the plan's size: 32 tokens of 16 KiB each."""
    instance = "trn2.48xlarge" if "line" in given else "inf2.24xlarge"
    found = findings(LLAMA_8B, instance, tensor_parallel_size=8, max_model_len=4096, max_num_seqs=4, **given)[0]
    assert found.code == "memory-does-not-fit"
    assert found.setting == "num_gpu_blocks_override"
    assert found.fix.startswith("Remove num_gpu_blocks_override: that takes about ")


def test_blocks_that_fit_are_counted_whole() -> None:
    """4096 blocks of 32 tokens take 2 GiB, four times what the sequences need."""
    shape: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 4096, "max_num_seqs": 8}
    found = findings(LLAMA_8B, "trn2.48xlarge", line="native-0.29", num_gpu_blocks_override=4096, **shape)[0]
    assert found.code == "memory-estimate"
    assert "KV cache 2.0" in found.why


@pytest.mark.parametrize(("line", "cache"), [("nxdi-0.16", "KV cache 7.1"), ("fork-0.9.1", "KV cache 24.0")])
def test_the_fork_caches_whole_sequences_of_llama_4(line: str, cache: str, tmp_path: Path) -> None:
    """48 layers of 131072 tokens for 8 sequences, 512 bytes each; with chunks, 36 of them have 8192 tokens."""
    (tmp_path / "config.json").write_text(json.dumps(MODELS[SCOUT]["config"]))
    shape: dict[str, Any] = {"max_model_len": 131072, "max_num_seqs": 8, "tensor_parallel_size": 64}
    config = EndpointConfig(model=str(tmp_path), line=line, instance="ml.trn2.48xlarge", **shape)
    found = [one for one in examine_config(config, build=None).findings if one.code.startswith("memory-")]
    assert [cache in one.why for one in found] == [True]


def test_without_the_blocks_a_model_that_is_too_large_needs_more_still() -> None:
    shape: dict[str, Any] = {"tensor_parallel_size": 8, "max_model_len": 4096, "max_num_seqs": 4}
    blocks: dict[str, Any] = {"enable_prefix_caching": True, "num_gpu_blocks_override": 200_000}
    found = findings(LLAMA_70B, "trn1.32xlarge", **shape, **blocks)[0]
    assert found.fix.startswith("Remove num_gpu_blocks_override. Set tensor_parallel_size to 32: that takes about ")
