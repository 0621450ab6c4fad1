"""The sampling parameters that a plan's engine supports."""

from __future__ import annotations

from typing import Any

import pytest

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.sampling_limits import (
    FORK_ON_CPU,
    NATIVE_ON_CPU,
    ON_CPU,
    PENALTIES,
    PLUGIN_ON_CPU,
    SUPPORTED,
    SamplingLimits,
    sampling_limits,
)
from tests.handler.neuron.checks.test_optimum_start import EXPORTED
from tests.handler.neuron.neuron_plans import llama, planned

EAGLE3: dict[str, Any] = {
    "speculation": "eagle3",
    "speculative_model": "/models/draft",
    "num_speculative_tokens": 5,
}


def exported(**keys: Any) -> ModelFacts:
    return llama(exported={**EXPORTED, **keys})


SPECULATIVE = {"speculative_model": "/d", "num_speculative_tokens": 4}
TNX = {"neuron_env": {"VLLM_NEURON_FRAMEWORK": "transformers-neuronx"}}


@pytest.mark.parametrize(
    ("line", "settings", "limits"),
    [
        ("nxdi-0.16", {}, SamplingLimits(True, 256, SUPPORTED)),
        ("nxdi-0.16", {"global_topk": 64}, SamplingLimits(True, 64, SUPPORTED)),
        ("nxdi-0.16", {"global_topk": 1000}, SamplingLimits(True, 256, SUPPORTED)),
        ("nxdi-0.16", {"on_device_sampling": False}, PLUGIN_ON_CPU),
        (
            "nxdi-0.16",
            {"neuron_config": {"on_device_sampling_config": {"dynamic": False}}},
            SamplingLimits(True, 256, frozenset(), greedy=True),
        ),
        (
            "nxdi-0.16",
            {"text_neuron_config": {"on_device_sampling_config": {"dynamic": True, "global_topk": 32}}},
            SamplingLimits(True, 32, SUPPORTED),
        ),
        ("native-0.24", {}, SamplingLimits(True, 256, SUPPORTED)),
        ("native-0.24", {"async_mode": False}, SamplingLimits(True, 256, SUPPORTED | {"logprobs"})),
        ("native-0.24", {"logprobs": True}, SamplingLimits(True, 256, SUPPORTED | {"logprobs"})),
        ("native-0.24", {"structured_outputs": True}, SamplingLimits(True, 256, SUPPORTED | {"logprobs", "grammar"})),
        ("native-0.24", {"on_device_sampling": False}, SamplingLimits(False, None, NATIVE_ON_CPU | {"logprobs"})),
        (
            "native-0.24",
            {"neuron_config": {"on_device_sampling_config": {"max_top_k": 64}}},
            SamplingLimits(True, 64, SUPPORTED),
        ),
        (
            "native-0.24",
            {"neuron_config": {"on_device_sampling_config": {"max_top_k": "64"}}},
            SamplingLimits(True, 64, SUPPORTED),
        ),
        ("native-0.24", {"on_device_sampling": True}, SamplingLimits(True, 256, SUPPORTED)),
        ("native-0.24", EAGLE3, SamplingLimits(True, 256, SUPPORTED)),
        ("native-0.29", {**EAGLE3, "async_mode": False}, SamplingLimits(True, 256, SUPPORTED)),
        ("native-0.29", {**EAGLE3, "on_device_sampling": False}, SamplingLimits(False, None, SUPPORTED | {"seed"})),
        (
            "native-0.24",
            {"neuron_config": {"on_device_sampling_config": {"all_greedy": True}}},
            SamplingLimits(True, 256, frozenset(), greedy=True),
        ),
        ("fork-0.9.1", {}, SamplingLimits(True, 256, SUPPORTED)),
        ("fork-0.9.1", SPECULATIVE, SamplingLimits(True, 256, frozenset(), greedy=True)),
        ("fork-0.9.1", {"on_device_sampling": False}, FORK_ON_CPU),
        ("fork-0.7.2", TNX, SamplingLimits(True, 256, SUPPORTED)),
        ("fork-0.9.1-tnx", {}, SamplingLimits(True, 256, SUPPORTED)),
        ("fork-0.9.1-tnx", {"on_device_sampling": False}, FORK_ON_CPU),
        ("optimum", {}, SamplingLimits(True, 256, SUPPORTED)),
        ("optimum", {"facts": exported(max_topk=64)}, SamplingLimits(True, 64, SUPPORTED)),
        ("optimum", {"facts": exported(on_device_sampling=False)}, SamplingLimits(False, 256, SUPPORTED | PENALTIES)),
        ("cpu", {}, ON_CPU),
    ],
)
def test_limits_follow_from_the_plan(line: str, settings: dict[str, Any], limits: SamplingLimits) -> None:
    assert sampling_limits(planned(line, **settings)) == limits


def test_a_penalty_counts_on_the_cpu_only() -> None:
    on_device = sampling_limits(planned("nxdi-0.16"))
    assert on_device.supports("top_p")
    assert not on_device.supports("repetition_penalty")
    assert sampling_limits(planned("nxdi-0.16", on_device_sampling=False)).supports("repetition_penalty")


def test_with_speculation_no_setting_of_the_native_plugin_gives_a_penalty_its_effect() -> None:
    for device in (True, False):
        limits = sampling_limits(planned("native-0.24", on_device_sampling=device, **EAGLE3))
        assert (limits.supports("repetition_penalty"), limits.setting("repetition_penalty")) == (False, "")
        assert (limits.logprobs, limits.setting("logprobs")) == (False, "")
    assert sampling_limits(planned("native-0.24", **EAGLE3)).setting("seed") == "ENDPOINT_ON_DEVICE_SAMPLING=false"


def test_log_probabilities_come_from_the_cpu_and_the_prompts_not_from_nxd_inference() -> None:
    on_device, on_cpu = (sampling_limits(planned("nxdi-0.16", on_device_sampling=device)) for device in (True, False))
    assert (on_device.logprobs, on_device.prompt_logprobs) == (False, False)
    assert (on_cpu.logprobs, on_cpu.prompt_logprobs) == (True, False)
    assert (ON_CPU.logprobs, ON_CPU.prompt_logprobs) == (True, True)
