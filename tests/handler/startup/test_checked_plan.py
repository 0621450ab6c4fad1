"""The environment variables of a plan are set in this process, before anything reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handler.config.loading.config_loader import load
from handler.neuron.engine_plan import EnginePlan
from handler.startup.checked_plan import checked_plan, use_environment


def test_the_variables_of_the_plan_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "ENDPOINT_LINE": "fork-0.7.2",
        "ENDPOINT_INSTANCE": "ml.trn1.32xlarge",
        "VLLM_NEURON_FRAMEWORK": "transformers-neuronx",
        "ENDPOINT_CONTEXT_ENCODING_BUCKETS": "128,512",
        "SM_VLLM_MAX_MODEL_LEN": "512",
        "ENDPOINT_ON_DEVICE_SAMPLING": "false",
    }
    written = {
        "NEURON_CONTEXT_LENGTH_BUCKETS": "128,512",
        "NEURON_ON_DEVICE_SAMPLING_DISABLED": "1",
    }
    for name in (*written, "VLLM_NEURON_FRAMEWORK"):
        monkeypatch.setenv(name, "")  # restored after the test
    use_environment(checked_plan(load(environ, fetch=lambda location: None, model="org/name")))
    assert {name: os.environ[name] for name in written} == written
    assert "VLLM_NEURON_FRAMEWORK" not in os.environ, "the engine would end of it"


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("NEURON_ON_DEVICE_SAMPLING_DISABLED", "1", "on_device_sampling_config"),
        ("NEURON_CONTEXT_LENGTH_BUCKETS", "128,512", "context_encoding_buckets"),
    ],
)
def test_a_variable_that_the_plan_spells_as_a_key_is_not_left_for_the_plugin(
    name: str, value: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin reads the first one too, and ends with a TypeError."""
    environ = {
        "ENDPOINT_LINE": "nxdi-0.16",
        "ENDPOINT_INSTANCE": "ml.trn1.32xlarge",
        "SM_VLLM_MAX_MODEL_LEN": "512",
        name: value,
    }
    monkeypatch.setenv(name, value)
    plan = checked_plan(load(environ, fetch=lambda location: None, model="org/name"))
    use_environment(plan)
    assert name not in os.environ
    assert key in str(plan.engine_args["additional_config"])


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NEURON_RT_VISIBLE_CORES", "", False),
        ("NEURON_VISIBLE_DEVICES", " ", False),
        ("VLLM_NEURON_CPU_MODE", "", False),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "", False),
        ("VLLM_CPU_KVCACHE_SPACE", "", False),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "900", True),
        ("VLLM_PLUGINS", "", True),
        ("OTHER", "", True),
    ],
)
@pytest.mark.parametrize("line", ["native-0.29", "cpu"])
def test_a_variable_that_a_template_left_empty_is_not_left_for_the_engine(
    line: str, name: str, value: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    use_environment(EnginePlan(line, {}))
    assert (name in os.environ) is kept


@pytest.mark.parametrize(("prepared", "deleted"), [(True, []), (False, ["OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE"])])
def test_no_variable_is_deleted_while_numpy_is_imported(prepared: bool, deleted: list[str]) -> None:
    """Another thread that reads all variables meanwhile, as botocore does, would fail."""
    program = """
import os, sys
from types import SimpleNamespace
from handler.startup.checked_plan import use_environment
if sys.argv[1:]:
    use_environment(SimpleNamespace(line="cpu", env={}))
sys.addaudithook(lambda event, of: event == "os.unsetenv" and print(of[0].decode()))
import numpy
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("BLAS_MAIN_FREE")}
    command = [sys.executable, "-c", program, *(["prepared"] if prepared else [])]
    ran = subprocess.run(command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, check=True)
    assert ran.stdout.decode().split() == deleted
