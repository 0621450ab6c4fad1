"""vLLM 0.9.1 takes a length from the tokenizer's file, and lowers max_model_len to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sample_model
from handler.config.loading.config_loader import load
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.file_examination import with_files


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
