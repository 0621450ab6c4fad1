"""Models that NxD Inference's classes cannot build or read, and their neighbours that they can."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import llama as shape
from tests.handler.neuron.neuron_plans import outcome

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
PLUGIN, FORK = "nxdi-0.16", "fork-0.9.1"
CAUSAL = "ForCausalLM"
IMAGES = "ForConditionalGeneration"


def severities(line: str, code: str, **settings: Any) -> set[Severity]:
    """The severities of the findings of a code."""
    result = outcome(line, **{"tensor_parallel_size": 8, **settings})
    return {finding.severity for finding in result.findings if finding.code == code}


@pytest.mark.parametrize("line", ["nxdi-0.16", "nxdi-0.13"])
@pytest.mark.parametrize(
    ("kind", "name", "config", "starts"),
    [
        ("gemma3", f"Gemma3{IMAGES}", {}, False),
        ("gemma3_text", f"Gemma3{CAUSAL}", {}, True),
        ("llava", f"Llava{IMAGES}", {"vision_config": {"model_type": "clip_vision_model"}}, False),
        ("llava", f"Llava{IMAGES}", {"text_config": {}}, False),
        ("llava", f"Llava{IMAGES}", {"vision_config": {"model_type": "pixtral"}}, True),
        ("pixtral", f"Pixtral{IMAGES}", {}, False),
        ("qwen3", "Qwen3ForSequenceClassification", {}, False),
        ("qwen3", f"Qwen3{CAUSAL}", {}, True),
        ("llama", "LlamaModel", {}, False),
        ("llama", f"LLaMA{CAUSAL}", {}, True),
        ("llama4_text", f"Llama4{CAUSAL}", {}, False),
        ("llama4", f"Llama4{IMAGES}", {}, True),
        ("qwen2_vl", f"Qwen2VL{IMAGES}", {}, True),
        ("qwen3_vl", f"Qwen3VL{IMAGES}", {}, True),
        ("qwen3_moe", f"Qwen3Moe{CAUSAL}", {}, True),
        ("gpt_oss", f"GptOss{CAUSAL}", {}, True),
        ("dbrx", f"Dbrx{CAUSAL}", {}, True),
    ],
)
def test_the_plugin_has_a_class_for_the_architecture(
    line: str, kind: str, name: str, config: dict[str, Any], starts: bool
) -> None:
    facts = shape(model_type=kind, architectures=(name,), config=config)
    assert severities(line, "unsupported-model", facts=facts) == (set() if starts else {ERROR})


def test_the_architecture_that_vllm_sets_is_the_one_that_counts() -> None:
    facts = shape(architectures=("LlamaModel",))
    arguments = {"hf_overrides": {"architectures": ["LlamaForCausalLM"]}}
    assert severities(PLUGIN, "unsupported-model", facts=facts, engine_args=arguments) == set()


@pytest.mark.parametrize(("runner", "starts"), [("pooling", False), ("generate", True), ("auto", True)])
def test_the_plugin_generates_only(runner: str, starts: bool) -> None:
    made = severities(PLUGIN, "not-on-nxdi", facts=shape(), engine_args={"runner": runner})
    assert made == (set() if starts else {ERROR})


@pytest.mark.parametrize(
    ("kind", "name", "severity"),
    [
        ("llama", f"Llama{CAUSAL}", None),
        ("mistral", f"Mistral{CAUSAL}", None),
        ("mixtral", f"Mixtral{CAUSAL}", None),
        ("dbrx", f"Dbrx{CAUSAL}", None),
        ("mllama", f"Mllama{IMAGES}", None),
        ("qwen2", f"Qwen2{CAUSAL}", WARNING),
        ("qwen3", f"Qwen3{CAUSAL}", WARNING),
        ("qwen3_moe", f"Qwen3Moe{CAUSAL}", WARNING),
        ("llama4", f"Llama4{IMAGES}", WARNING),
        ("qwen3", "Qwen3ForSequenceClassification", ERROR),
        ("gpt_oss", f"GptOss{CAUSAL}", ERROR),
        ("gemma3_text", f"Gemma3{CAUSAL}", ERROR),
        ("qwen2_vl", f"Qwen2VL{IMAGES}", ERROR),
        ("qwen3_vl", f"Qwen3VL{IMAGES}", ERROR),
    ],
)
def test_the_fork_has_fewer_classes(kind: str, name: str, severity: Severity | None) -> None:
    facts = shape(model_type=kind, architectures=(name,))
    assert severities(FORK, "unsupported-model", facts=facts) == ({severity} if severity else set())
