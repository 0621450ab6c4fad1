"""The native stand-in in vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_run import run_engine

ON = {"NEURON_STAND_IN": "native"}
PROMPT: dict[str, Any] = {"prompt": [300, 17, 900, 41, 5], "temperature": 0, "max_tokens": 16}
PENALIZED: dict[str, Any] = {**PROMPT, "repetition_penalty": 0.01}


def test_a_miss_fails_where_forbidden_and_compiles_where_not(site: Path, model: Path, tmp_path: Path) -> None:
    engine = {"model": str(model), "enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 4}
    engine |= {"block_size": 64, "additional_config": {"neuron_config": {"num_seqs_buckets": [1, 4]}}}
    cache = {**ON, "VLLM_CACHE_ROOT": str(tmp_path / "vllm")}
    forbid = {**cache, "VLLM_NEURON_DISABLE_WARMUP_COMPILE": "1"}

    missed = run_engine(site, tmp_path / "missed", forbid, engine=engine)
    assert "VLLM_NEURON_DISABLE_WARMUP_COMPILE" in missed.answer["message"]

    compiled = run_engine(site, tmp_path / "compiled", cache, engine=engine, batches=[[PROMPT], [PENALIZED]])
    assert len(list((tmp_path / "vllm/neuron/compile_cache").glob("*/.compilation_complete"))) == 3
    assert compiled.answer["values"]["block_size"] == 128  # its own affair
    assert compiled.request(0)["ids"] != compiled.request(1)["ids"]  # sampled on the CPU by default

    taken = run_engine(site, tmp_path / "taken", forbid, engine=engine, batches=[[PROMPT], [PENALIZED]])
    assert taken.answer["batches"] == compiled.answer["batches"]


def test_speculation_is_eagle3_only(site: Path, model: Path, tmp_path: Path) -> None:
    draft = {"model": str(model), "num_speculative_tokens": 4, "method": "draft_model"}
    base = {"model": str(model), "max_model_len": 1024, "speculative_config": draft}
    refused = run_engine(site, tmp_path, ON, configure=[base]).answer["configured"][0]
    assert "only eagle3" in refused["message"]
