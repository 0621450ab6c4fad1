"""NxD Inference's own class checks a plan last, if it is installed (a stand-in here)."""

from __future__ import annotations

import functools
import sys
import types

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.neuron_config.real_class import MODULE, construct
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.planner import make_plan
from handler.startup.checked_plan import checked_plan
from tests.handler.neuron.neuron_config import standin_nxdi_config

build = functools.partial(construct, module=standin_nxdi_config.__name__)


def plan(length: int, line: str = "nxdi-0.16") -> PlanOutcome:
    config = EndpointConfig(max_model_len=length, max_num_seqs=2, tensor_parallel_size=8)
    return make_plan(config, None, None, line=line, build=build)


def test_it_is_given_the_defaults_of_the_plugin_and_the_override() -> None:
    standin_nxdi_config.TAKEN.clear()
    assert plan(256).plan is not None
    (keys,) = standin_nxdi_config.TAKEN
    assert keys["batch_size"] == 2
    assert keys["seq_len"] == keys["max_context_length"] == 256
    assert keys["tp_degree"] == 8
    assert keys["is_continuous_batching"] is True
    assert keys["ctx_batch_size"] == 1
    assert keys["padding_side"] == "right"
    assert keys["quantized"] is False


def test_what_it_raises_is_an_error() -> None:
    (empty,) = plan(666).errors
    assert empty.code == "neuron-config-raises"
    assert "AssertionError" in empty.why
    (told,) = plan(667).errors
    assert "evenly divisible" in told.why


def test_a_machine_on_which_it_cannot_judge_is_no_error() -> None:
    assert plan(668).plan is not None


def test_check_builds_it_and_a_start_does_not_even_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Package(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return standin_nxdi_config.NeuronConfig

    monkeypatch.setitem(sys.modules, MODULE, Package(MODULE))
    settings = {"model": str(sample_model.path()), "line": "nxdi-0.16", "max_model_len": 667}
    config = EndpointConfig(**settings, max_num_seqs=2, tensor_parallel_size=2)  # type: ignore[arg-type]
    assert checked_plan(config).line == "nxdi-0.16"
    assert "NeuronConfig" not in asked
    assert "neuron-config-raises" in {finding.code for finding in examine_config(config).findings}
    assert "NeuronConfig" in asked
