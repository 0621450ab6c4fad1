"""Drafts on vLLM's own backend: what its loaders, transformers-neuronx and vLLM 0.9.1 reject or ignore."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import found, llama, outcome, planned

LINES = ("fork-0.9.1", "fork-0.9.1-tnx")
DRAFT: dict[str, Any] = {
    "speculative_model": "/models/draft",
    "num_speculative_tokens": 4,
    "max_num_seqs": 8,
    "max_model_len": 4096,
    "tensor_parallel_size": 32,
}
SHORT = llama(max_position_embeddings=2048)


@pytest.mark.parametrize("line", LINES)
def test_a_draft_that_was_trained_for_less_starts_with_a_warning(line: str) -> None:
    """vLLM 0.9.1 would reject the model's length for it, if the plan gave it one."""
    plan = planned(line, **DRAFT)
    assert plan.engine_args["speculative_config"] == {"model": "/models/draft", "num_speculative_tokens": 4}
    finding = found(outcome(line, **DRAFT, draft_model=SHORT), "draft-shorter")
    assert (finding.severity, finding.setting) == (Severity.WARNING, "speculative_model")
    assert "2048" in finding.fix


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(("length", "trained"), [(1024, 131072), (4096, 2048), (8192, 131072)])
def test_a_length_of_the_draft_that_vllm_rejects(line: str, length: int, trained: int) -> None:
    settings = {**DRAFT, "engine_args": {"speculative_config": {"max_model_len": length}}}
    finding = found(outcome(line, **settings, draft_model=llama(max_position_embeddings=trained)), "draft-length")
    assert (finding.severity, finding.setting) == (Severity.ERROR, "speculative_config")


@pytest.mark.parametrize(
    ("settings", "code", "setting"),
    [
        ({"on_device_sampling": False}, "needs-on-device-sampling", "on_device_sampling"),
        ({"logprobs": True}, "needs-on-device-sampling", "on_device_sampling"),
        ({"quantization": "int8"}, "draft-not-quantized", "quantization"),
        (
            {"engine_args": {"speculative_config": {"draft_tensor_parallel_size": 1}}},
            "draft-degree",
            "speculative_config",
        ),
        ({"speculative_model": "org/EAGLE-llama"}, "draft-path", "speculative_model"),
        ({"speculative_model": "/models/eagle3-llama"}, "draft-path", "speculative_model"),
    ],
)
def test_what_transformers_neuronx_has_not(settings: dict[str, Any], code: str, setting: str) -> None:
    finding = found(outcome("fork-0.9.1-tnx", **{**DRAFT, **settings}), code)
    assert (finding.severity, finding.setting) == (Severity.ERROR, setting)


@pytest.mark.parametrize("draft", ["/models/is-eagle", "s3://bucket/eagle-llama/"])
def test_a_path_that_the_loader_takes(draft: str) -> None:
    planned("fork-0.9.1-tnx", **{**DRAFT, "speculative_model": draft})
