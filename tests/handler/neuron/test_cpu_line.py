"""What the CPU line adds to vLLM's own arguments."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.planning.planner import make_plan
from tests.handler.neuron.neuron_plans import planned


@pytest.mark.parametrize(
    ("settings", "disabled"),
    [
        ({"engine_args": {"enforce_eager": True}}, "1"),
        ({"engine_args": {"enforce_eager": False}}, None),
        ({}, None),
        # What the sampler compiles is kept there, and the next start has it.
        ({"engine_args": {"enforce_eager": True}, "artifact_store": "s3://bucket/store"}, None),
    ],
)
def test_eager_is_without_torch_compile_for_the_sampler_too(settings: dict[str, Any], disabled: str | None) -> None:
    plan = make_plan(EndpointConfig(model="/m", **settings), None, None, line="cpu", installed={"vllm": "0.16.0"}).plan
    assert plan is not None
    assert plan.env.get("TORCHDYNAMO_DISABLE") == disabled


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({"lora_modules": {"a": "/a"}}, 2),
        ({"lora_modules": {"a": "/a", "b": "/b"}}, 3),
        ({"lora_modules": {"a": "/a"}, "max_loras": 1}, 1),
        ({"enable_lora": True}, None),
    ],
)
def test_the_bare_model_has_a_place_beside_the_adapters(settings: dict[str, Any], places: int | None) -> None:
    plan = make_plan(EndpointConfig(model="/m", **settings), None, None, line="cpu", installed={"vllm": "0.16.0"}).plan
    assert plan is not None
    assert plan.engine_args.get("max_loras") == places


@pytest.mark.parametrize(
    ("switch", "without_effect"), [({}, ["max_cpu_loras", "max_loras"]), ({"enable_lora": True}, [])]
)
def test_limits_of_adapters_that_are_not_served(switch: dict[str, Any], without_effect: list[str]) -> None:
    config = EndpointConfig(model="/m", max_loras=4, engine_args={"max_cpu_loras": 8}, **switch)
    findings = make_plan(config, None, None, line="cpu", installed={"vllm": "0.16.0"}).findings
    assert sorted(found.setting for found in findings if found.code == "lora-limits-alone") == without_effect


def test_separate_flags_of_speculation_are_one_argument_of_vllm() -> None:
    later = {"vllm": "0.29.0"}
    plan = planned("cpu", installed=later, engine_args={"spec_method": "ngram", "spec_tokens": 2})
    assert plan.engine_args["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 2}
    own = {"spec_method": "eagle3", "spec_tokens": 2, "spec_model": "/models/draft"}
    draft = planned("cpu", installed=later, engine_args=own)
    drafted = {"method": "eagle3", "model": "/models/draft", "num_speculative_tokens": 2}
    assert draft.engine_args["speculative_config"] == drafted
