"""`requirements/line_changes.py`: what a new version of vLLM or of a plugin changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLD = """
import os
class NeuronConfig:
    ep_degree: int = 1
    max_logprobs: int = 0
TIMEOUT = os.environ.get("VLLM_NEURON_COMPILATION_TIMEOUT")
"""
NEW = """
import os
class NeuronConfig:
    ep_degree: int | None = None
    trace_cache: bool = True
TIMEOUT = os.environ.get("NEURON_LIBTORCH_COMPILATION_TIMEOUT")
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "requirements/line_changes.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_arguments_variables_and_keys_that_differ_are_listed_with_our_files(tmp_path: Path) -> None:
    for name, source in (("old", OLD), ("new", NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plugin.py").write_text(source)
    done = run("0.24.0", "0.29.0", "--sources", str(tmp_path / "old"), str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    arguments, variables, keys = done.stdout.split("## ")[1:]
    assert "removed: 4\n- calculate_kv_scales" in arguments
    assert "- kv_cache_dtype (with int4_per_token_head" in arguments
    files = "handler/artifacts/identity/key_exclusions.py, handler/config/dialects/neuron_variables.py"
    assert f"removed: 1\n- VLLM_NEURON_COMPILATION_TIMEOUT: {files}" in variables
    assert "added: 1\n- NEURON_LIBTORCH_COMPILATION_TIMEOUT" in variables
    assert "removed: 1\n- NeuronConfig.max_logprobs" in keys
    assert "added: 1\n- NeuronConfig.trace_cache (bool)\n" in keys
    assert "- NeuronConfig.ep_degree (with None, with |)" in keys


def test_a_version_without_a_table_is_named() -> None:
    done = run("0.24.0", "9.9.9")
    assert done.returncode == 1
    assert "vllm_arguments/9.9.9.json" in done.stderr
