"""The native stand-in in vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.neuron_contract.engine_run import run_engine

pytestmark = pytest.mark.engine

ON = {"NEURON_STAND_IN": "native"}
PROMPT: dict[str, Any] = {"prompt": [300, 17, 900, 41, 5], "temperature": 0, "max_tokens": 16}
PENALIZED: dict[str, Any] = {**PROMPT, "repetition_penalty": 0.01}


def test_a_miss_fails_where_forbidden_and_compiles_where_not(site: Path, model: Path, tmp_path: Path) -> None:
    engine = {"model": str(model), "max_model_len": 1024, "max_num_seqs": 4, "enable_prefix_caching": False}
    engine |= {"block_size": 64, "additional_config": {"neuron_config": {"num_seqs_buckets": [1, 4]}}}
    engine |= {"async_scheduling": True}
    cache = {**ON, "VLLM_CACHE_ROOT": str(tmp_path / "vllm")}
    forbid = {**cache, "VLLM_NEURON_DISABLE_WARMUP_COMPILE": "1"}

    missed = run_engine(site, tmp_path / "missed", forbid, engine=engine)
    assert "VLLM_NEURON_DISABLE_WARMUP_COMPILE" in missed.answer["message"]

    compiled = run_engine(site, tmp_path / "compiled", cache, engine=engine, batches=[[PROMPT], [PENALIZED]])
    assert len(list((tmp_path / "vllm/neuron/compile_cache").glob("*/.compilation_complete"))) == 3
    assert compiled.answer["values"]["block_size"] == 128  # its own affair
    assert compiled.request(0)["ids"] == compiled.request(1)["ids"]  # sampled on the device by default

    taken = run_engine(site, tmp_path / "taken", forbid, engine=engine, batches=[[PROMPT], [PENALIZED]])
    assert taken.answer["batches"] == compiled.answer["batches"]


def test_speculation_is_eagle3_only(site: Path, model: Path, tmp_path: Path) -> None:
    draft = {"model": str(model), "num_speculative_tokens": 4, "method": "draft_model"}
    base = {"model": str(model), "enable_prefix_caching": False, "speculative_config": draft}
    refused = run_engine(site, tmp_path, ON, configure=[base]).answer["configured"][0]
    assert "native stand-in, runner: speculation" in refused["message"]


# Parameters that change the tokens of PROMPT wherever they count.
COUNT: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 0.01},
    "presence_penalty": {"presence_penalty": -2.0},
    "logit_bias": {"logit_bias": {"7": 100}},
    "allowed_token_ids": {"allowed_token_ids": [7, 8]},
    "grammar": {"choices": ["red", "blue"]},
}
SAMPLED = {"temperature": 2.0, "top_k": 200}


def counted(site: Path, workdir: Path, model: Path, keys: dict[str, Any]) -> tuple[set[str], dict[str, Any]]:
    """The parameters that change the tokens with synchronous scheduling, and what came of one with logprobs."""
    engine = {"model": str(model), "max_model_len": 1024, "max_num_seqs": 4, "enable_prefix_caching": False}
    keys = {"enable_structured_outputs": True, **keys}
    engine |= {"async_scheduling": False, "additional_config": {"neuron_config": keys}}
    batches = [[PROMPT], *([{**PROMPT, **given}] for given in COUNT.values())]
    seeded = [[{**PROMPT, **SAMPLED, "seed": 1}], [{**PROMPT, **SAMPLED, "seed": 1}]]
    narrowed = [[{**PROMPT, **SAMPLED, "min_p": 1.0}], [{**PROMPT, "logprobs": 1}]]
    run = run_engine(site, workdir, ON, within=270, engine=engine, batches=[*batches, *seeded, *narrowed])
    plain, (first, second, narrow, last) = run.request(0), [run.request(len(batches) + one) for one in range(4)]
    changed = {name for number, name in enumerate(COUNT, 1) if run.request(number)["ids"] != plain["ids"]}
    changed |= {"seed"} if first["ids"] == second["ids"] else set()
    changed |= {"min_p"} if narrow["ids"] == plain["ids"] else set()
    return changed, last


def test_on_the_cpu_all_counts_but_min_p_and_biases(site: Path, model: Path, tmp_path: Path) -> None:
    changed, scored = counted(site, tmp_path, model, {"on_device_sampling_config": None})
    assert changed == {"repetition_penalty", "presence_penalty", "allowed_token_ids", "grammar", "seed"}
    assert scored["logprobs"]


def test_on_the_device_grammars_and_log_probabilities_count(site: Path, model: Path, tmp_path: Path) -> None:
    changed, scored = counted(site, tmp_path, model, {})
    assert changed == {"grammar"}
    assert scored["logprobs"]


def test_a_grammar_with_asynchronous_scheduling_ends_the_engine(site: Path, model: Path, tmp_path: Path) -> None:
    engine = {"model": str(model), "max_model_len": 1024, "max_num_seqs": 4, "enable_prefix_caching": False}
    engine |= {
        "async_scheduling": True,
        "additional_config": {"neuron_config": {"enable_structured_outputs": True}},
    }
    ended = run_engine(site, tmp_path, ON, engine=engine, batches=[[{**PROMPT, **COUNT["grammar"]}]])
    assert "error" in ended.request(0)


def test_a_rule_is_held_over_the_configuration_that_vllm_builds(site: Path, model: Path, tmp_path: Path) -> None:
    """vLLM's own defaults: prefix caching, and no segments for the sample model's length."""
    defaults, fixed = {"model": str(model)}, {"model": str(model), "enable_prefix_caching": False}
    answers = run_engine(site, tmp_path, ON, configure=[defaults, fixed]).answer["configured"]
    assert (answers[0]["error"], "prefix caching requires" in answers[0]["message"]) == ("ValidationError", True)
    assert "error" not in answers[1]
