"""The longest prompt and sequence of a plan, and the length that vLLM 0.9.1 takes from the tokenizer's file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sample_model
from handler.config.loading.config_loader import load
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.length_limits import UNLIMITED, LengthLimits, length_limits
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.file_examination import with_files


def limits(override: dict[str, Any], line: str = "nxdi-0.16", **arguments: Any) -> LengthLimits:
    additional = {"override_neuron_config": override, **arguments.pop("additional", {})}
    return length_limits(EnginePlan(line, {"max_model_len": 1024, "additional_config": additional, **arguments}))


@pytest.mark.parametrize(
    ("override", "prompt", "sequence"),
    [
        ({}, None, 1024),
        ({"max_context_length": 512}, 512, 1024),
        ({"context_encoding_buckets": [128, 256], "max_context_length": 512}, 256, 1024),
        ({"token_generation_buckets": [256, 768]}, None, 768),
        ({"context_encoding_buckets": [128], "token_generation_buckets": [256], "enable_bucketing": False}, None, 1024),
        ({"seq_len": 2048}, None, 1024),
        ({"text_neuron_config": {"context_encoding_buckets": [256]}}, 256, 1024),
        ({"speculation_length": 5}, None, 1019),
        ({"context_encoding_buckets": "many", "token_generation_buckets": [True, 0, "x"]}, None, 1024),
    ],
)
def test_the_shortest_of_what_a_graph_takes(override: dict[str, Any], prompt: int | None, sequence: int) -> None:
    assert limits(override) == LengthLimits(prompt, sequence)


def test_speculation_wants_room_at_the_end() -> None:
    speculation = {"method": "eagle", "num_speculative_tokens": 6}
    assert limits({}, speculative_config=speculation) == LengthLimits(None, 1018)
    assert limits({"token_generation_buckets": [512]}, speculative_config=speculation) == LengthLimits(None, 506)


def test_max_prompt_length_counts_without_a_context_length() -> None:
    assert limits({}, additional={"max_prompt_length": 300}).prompt == 300


def test_the_fork_has_its_override_elsewhere() -> None:
    arguments: dict[str, Json] = {"max_model_len": 1024, "override_neuron_config": {"context_encoding_buckets": [256]}}
    assert length_limits(EnginePlan("fork-0.9.1", arguments)) == LengthLimits(256, 1024)


@pytest.mark.parametrize("line", ["cpu", "native-0.24", "optimum"])
def test_other_lines_have_vllm_s_own_limit(line: str) -> None:
    assert limits({"context_encoding_buckets": [1]}, line) == UNLIMITED


@pytest.mark.parametrize(
    ("line", "trained", "found"),
    [
        ("fork-0.9.1", 1024, True),
        ("fork-0.9.1-tnx", 1024, True),
        ("fork-0.9.1", 2048, False),
        ("fork-0.9.1", 1e30, False),
        ("nxdi-0.16", 1024, False),
    ],
)
def test_a_length_above_the_tokenizers(line: str, trained: float, found: bool, tmp_path: Path) -> None:
    shutil.copytree(sample_model.path(), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": trained}))
    environ = {"ENDPOINT_LINE": line, "ENDPOINT_INSTANCE": "ml.trn1.2xlarge", "SM_VLLM_MAX_MODEL_LEN": "2048"}
    findings = with_files(examine_config(load(environ, model=str(tmp_path)))).findings
    named = [(one.setting, "1024" in one.fix) for one in findings if one.code == "tokenizer-length"]
    assert named == ([("SM_VLLM_MAX_MODEL_LEN", True)] if found else [])


@pytest.mark.parametrize(
    ("keys", "longest"),
    [
        ({"max_seq_len": 512}, 512),
        ({"seq_length": 512, "max_seq_len": 1024}, 512),
        ({"model_max_length": 1024}, 1024),
        ({"model_max_length": 2048, "max_seq_len": 512}, 2048),
        ({"model_max_length": 1024, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 2048),
        ({"max_seq_len": None}, 2048),
    ],
    ids=str,
)
@pytest.mark.parametrize("environ", [{}, {"ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}], ids=["cpu", "native"])
def test_the_length_is_that_of_the_key_that_vllm_reads(
    keys: dict[str, object], longest: int, environ: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(sample_model.path(), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))

    def codes(**variables: str) -> set[str]:
        return {one.code for one in examine_config(load({**environ, **variables}, model=str(tmp_path))).findings}

    assert "length-beyond-model" not in codes()
    assert "length-beyond-model" not in codes(SM_VLLM_MAX_MODEL_LEN=str(longest))
    assert "length-beyond-model" in codes(SM_VLLM_MAX_MODEL_LEN=str(longest + 1))
