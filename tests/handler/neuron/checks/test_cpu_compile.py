"""A compile on a host without Neuron devices: what it can do is planned, and what it cannot do is an error."""

from __future__ import annotations

import pytest

from handler.config.loading.config_loader import load
from handler.neuron.engine_plan import PlanOutcome
from handler.neuron.hardware.current_machine import this_machine
from handler.neuron.planning.planner import make_plan

COMPILE = {
    "VLLM_NEURON_CPU_COMPILE": "1",
    "ENDPOINT_MODEL": "org/model",
    "ENDPOINT_INSTANCE": "ml.trn2.48xlarge",
    "ENDPOINT_ARTIFACT_STORE": "s3://bucket/store",
}
DRAFT = {
    "ENDPOINT_SPECULATION": "eagle3",
    "ENDPOINT_SPECULATIVE_MODEL": "org/draft",
    "ENDPOINT_NUM_SPECULATIVE_TOKENS": "4",
}


def planned(**environment: str) -> PlanOutcome:
    config = load({name: value for name, value in {**COMPILE, **environment}.items() if value})
    return make_plan(config, None, this_machine(config))


def test_the_target_is_that_of_the_instance() -> None:
    outcome = planned()
    assert outcome.plan is not None
    assert outcome.plan.env["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"
    (told,) = [one for one in outcome.findings if one.code == "cpu-compile"]
    assert (told.severity.value, "serves no request" in told.why) == ("warning", True)


@pytest.mark.parametrize(
    ("change", "code", "setting"),
    [
        ({"ENDPOINT_LINE": "nxdi-0.16"}, "cpu-compile-line", "VLLM_NEURON_CPU_COMPILE"),
        (
            {"ENDPOINT_LINE": "native-0.29", "ENDPOINT_INSTANCE": ""},
            "cpu-compile-target",
            "VLLM_NEURON_CPU_COMPILE",
        ),
        (DRAFT, "cpu-compile-speculation", "ENDPOINT_SPECULATION"),
        ({"ENDPOINT_ARTIFACT_STORE": ""}, "cpu-compile-store", "VLLM_NEURON_CPU_COMPILE"),
    ],
)
def test_what_it_cannot_do_is_an_error(change: dict[str, str], code: str, setting: str) -> None:
    assert [(one.code, one.setting) for one in planned(**change).errors] == [(code, setting)]


def test_without_the_variable_nothing_is_said_of_it() -> None:
    outcome = planned(VLLM_NEURON_CPU_COMPILE="0")
    assert outcome.plan is not None
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" not in outcome.plan.env
    assert not [one for one in outcome.findings if one.code.startswith("cpu-compile")]
