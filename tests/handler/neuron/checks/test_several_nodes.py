"""Several nodes or engines for one model are rejected if no line of this container can run them."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import found, llama, outcome

TWO: dict[str, Any] = {"nnodes": 2, "master_addr": "10.0.0.1"}
MASTER = {"MASTER_ADDR": "10.0.0.1", "NEURON_RANK_ID": "0"}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("nnodes", 2),
        ("pipeline_parallel_size", 2),
        ("distributed_executor_backend", "ray"),
        ("distributed_executor_backend", "external_launcher"),
        ("node_rank", 1),
    ],
)
@pytest.mark.parametrize("line", ["nxdi-0.16", "nxdi-0.13"])
def test_the_plugin_spreads_nothing_over_processes(line: str, argument: str, value: Any) -> None:
    result = outcome(line, facts=llama(), engine_args={argument: value})
    finding = found(result, "several-nodes")
    assert (finding.severity, finding.setting) == (Severity.ERROR, argument)
    assert result.plan is None


@pytest.mark.parametrize(
    "args",
    [{}, {"nnodes": 1, "node_rank": 0, "pipeline_parallel_size": 1}, {"distributed_executor_backend": "mp"}],
)
@pytest.mark.parametrize("line", ["nxdi-0.16", "native-0.24", "cpu"])
def test_one_node_is_nothing_to_speak_of(line: str, args: dict[str, Any]) -> None:
    result = outcome(line, facts=llama(), engine_args=args)
    assert not [one for one in result.findings if one.code.startswith("several")]
    assert result.plan is not None


def test_an_untested_vllm_is_a_warning() -> None:
    native = outcome("native-0.24", facts=llama(), tensor_parallel_size=2, engine_args=TWO)
    assert {one.severity for one in native.findings if one.code == "several-nodes"} == {Severity.WARNING}
    assert native.plan is not None
    assert native.plan.engine_args["nnodes"] == 2
    fork = outcome("fork-0.9.1", facts=llama(), engine_args={"data_parallel_size": 2})
    assert found(fork, "several-nodes").severity is Severity.WARNING
    engines = outcome("nxdi-0.16", facts=llama(), engine_args={"data_parallel_size": 2})
    assert found(engines, "several-engines").severity is Severity.WARNING
    alone = outcome("cpu", facts=llama(), engine_args={"data_parallel_size": 2, "data_parallel_address": "10.0.0.4"})
    assert found(alone, "several-engines").severity is Severity.WARNING


@pytest.mark.parametrize("line", ["cpu", "native-0.29"])
def test_a_node_may_have_the_front_end_only(line: str) -> None:
    spread: dict[str, Any] = {
        "data_parallel_size": 128,
        "data_parallel_size_local": 0,
        "data_parallel_address": "10.0.0.4",
    }
    instance = "trn2.48xlarge"
    config = EndpointConfig(model="/m", instance=instance, tensor_parallel_size=4, engine_args=spread)
    assert not make_plan(config, llama(), find(instance), line=line, build=lambda keys: None).errors


@pytest.mark.parametrize("local", [0, 1])
@pytest.mark.parametrize("line", ["cpu", "native-0.29", "nxdi-0.16"])
@pytest.mark.parametrize("instance", ["ml.trn2.48xlarge", "trn2.48xlarge"])
def test_engines_that_no_other_node_can_join_are_not_waited_for(line: str, instance: str, local: int) -> None:
    engines: dict[str, Any] = {"data_parallel_size": 2, "data_parallel_size_local": local}
    for address, refused in (({}, True), ({"data_parallel_address": "10.0.0.4"}, instance.startswith("ml."))):
        config = EndpointConfig(model="/m", instance=instance, engine_args={**engines, **address})
        result = make_plan(config, llama(), find(instance), line=line, build=lambda keys: None)
        code = "several-nodes" if instance.startswith("ml.") else "distant-engines"
        assert [one.code for one in result.errors] == [code] * refused


@pytest.mark.parametrize(
    ("line", "settings", "setting"),
    [
        ("native-0.24", {"engine_args": TWO}, "nnodes"),
        ("cpu", {"engine_args": {"data_parallel_address": "10.0.0.1"}}, "data_parallel_address"),
        ("cpu", {"engine_args": {"data_parallel_size": 2, "data_parallel_rank": 1}}, "data_parallel_rank"),
        ("native-0.29", {"disaggregation": "prefill", "tensor_parallel_size": 4}, "disaggregation"),
        ("native-0.24", {"disaggregation": "decode", "tensor_parallel_size": 4}, "disaggregation"),
        ("fork-0.9.1", {"nodes": 2, "tensor_parallel_size": 64, "neuron_env": MASTER}, "nodes"),
    ],
)
def test_an_endpoints_instance_is_one_node(line: str, settings: dict[str, Any], setting: str) -> None:
    for instance, refused in (("ml.trn2.48xlarge", True), ("trn2.48xlarge", False)):
        config = EndpointConfig(model="/models/llama", instance=instance, **settings)
        result = make_plan(config, llama(), find(instance), line=line, build=lambda keys: None)
        wrong = [one for one in result.findings if one.code == "several-nodes" and one.severity is Severity.ERROR]
        assert [one.setting for one in wrong] == ([setting] if refused else [])
        assert all("cannot" in one.why and "of an endpoint" in one.why for one in wrong)


@pytest.mark.parametrize("variables", [{}, {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.4"}])
def test_the_other_half_has_an_address_to_connect_to(variables: dict[str, str]) -> None:
    result = outcome(
        "native-0.29", facts=llama(), tensor_parallel_size=4, disaggregation="decode", neuron_env=variables
    )
    told = [one.severity for one in result.findings if one.code == "disaggregation-without-address"]
    assert told == ([] if variables else [Severity.INFO])
