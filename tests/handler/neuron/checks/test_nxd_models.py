"""Models that NxD Inference's classes cannot build or read, and their neighbours that they can."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import llama as shape
from tests.handler.neuron.neuron_plans import outcome, planned

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


LINEAR = {"rope_type": "linear", "factor": 8.0}


@pytest.mark.parametrize(
    ("config", "starts"),
    [
        ({"vocab_size": 262208, "rope_scaling": LINEAR}, True),
        ({"rope_scaling": LINEAR}, True),
        ({"vocab_size": 262144, "rope_scaling": LINEAR}, False),
        ({"vocab_size": 262208, "rope_scaling": None}, False),
    ],
)
def test_every_gemma_3_is_built_alike(config: dict[str, Any], starts: bool) -> None:
    facts = shape(model_type="gemma3_text", architectures=(f"Gemma3{CAUSAL}",), config=config)
    assert severities(PLUGIN, "unsupported-model", facts=facts) == (set() if starts else {ERROR})


@pytest.mark.parametrize(
    ("line", "name", "head_dim", "starts"),
    [
        (PLUGIN, f"Mistral{CAUSAL}", 128, False),
        (PLUGIN, f"Mistral{CAUSAL}", 160, True),
        (PLUGIN, f"Mixtral{CAUSAL}", 128, False),
        (PLUGIN, f"Qwen2{CAUSAL}", 128, False),
        (PLUGIN, f"Qwen3{CAUSAL}", 128, True),
        (PLUGIN, f"Llama{CAUSAL}", 128, True),
        (FORK, f"Mistral{CAUSAL}", 128, True),
    ],
)
def test_heads_that_are_not_the_width_divided(line: str, name: str, head_dim: int, starts: bool) -> None:
    facts = shape(model_type="mistral", architectures=(name,), hidden_size=5120, head_dim=head_dim)
    assert severities(line, "unsupported-model", facts=facts) == (set() if starts else {ERROR})


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("name", "rope", "warned"),
    [
        (f"Qwen2{CAUSAL}", YARN, True),
        (f"Qwen3{CAUSAL}", YARN, True),
        (f"Qwen3Moe{CAUSAL}", YARN, True),
        (f"Mistral{CAUSAL}", LINEAR, True),
        (f"Mixtral{CAUSAL}", LINEAR, True),
        (f"Qwen2{CAUSAL}", None, False),
        (f"Qwen2{CAUSAL}", {"rope_type": "default"}, False),
        (f"Llama{CAUSAL}", YARN, False),
    ],
)
def test_a_rotary_scaling_that_a_class_ignores(name: str, rope: dict[str, Any] | None, warned: bool) -> None:
    facts = shape(model_type="qwen2", architectures=(name,), config={"rope_scaling": rope})
    assert severities(PLUGIN, "rope-ignored", facts=facts) == ({WARNING} if warned else set())


@pytest.mark.parametrize(
    ("line", "overrides", "warned"),
    [
        (PLUGIN, {"rope_scaling": YARN}, True),
        (FORK, {"rope_theta": 5e5}, True),
        (PLUGIN, {"architectures": ["LlamaForCausalLM"], "quantization_config": {}}, False),
        ("native-0.29", {"rope_theta": 5e5}, False),
    ],
)
def test_overrides_that_do_not_reach_the_graph(line: str, overrides: dict[str, Any], warned: bool) -> None:
    made = severities(line, "hf-overrides-unread", facts=shape(), engine_args={"hf_overrides": overrides})
    assert made == ({WARNING} if warned else set())


@pytest.mark.parametrize(
    ("target", "draft", "starts"),
    [
        (f"Qwen2{CAUSAL}", f"Qwen2{CAUSAL}", False),
        (f"Qwen3{CAUSAL}", "EagleQwen3Model", False),
        (f"Llama{CAUSAL}", f"Qwen2{CAUSAL}", False),
        (f"Llama{CAUSAL}", f"Llama{CAUSAL}", True),
        (f"Llama{CAUSAL}", f"Llama{CAUSAL}Eagle", True),
        (f"GptOss{CAUSAL}", f"GptOss{CAUSAL}", True),
    ],
)
def test_the_class_of_an_eagle_draft_has_the_layer(target: str, draft: str, starts: bool) -> None:
    eagle = {"speculation": "eagle", "speculative_model": "/models/draft", "num_speculative_tokens": 4}
    models = {"facts": shape(architectures=(target,)), "draft_model": shape(architectures=(draft,))}
    assert severities(PLUGIN, "draft-architecture", **models, **eagle) == (set() if starts else {ERROR})
    plain = {**eagle, "speculation": "draft_model"}
    assert severities(PLUGIN, "draft-architecture", **models, **plain) == set()


@pytest.mark.parametrize(
    ("line", "name", "starts"),
    [
        (PLUGIN, f"Mistral{CAUSAL}", False),
        (PLUGIN, f"Mixtral{CAUSAL}", False),
        (PLUGIN, f"Llama{CAUSAL}", True),
        (PLUGIN, f"Qwen2{CAUSAL}", True),
        (FORK, f"Mistral{CAUSAL}", True),
    ],
)
def test_a_class_that_fuses_no_weights(line: str, name: str, starts: bool) -> None:
    facts = shape(architectures=(name,), model_type="mistral")
    assert severities(line, "fused-qkv", facts=facts, fused_qkv=True) == (set() if starts else {ERROR})
    assert severities(line, "fused-qkv", facts=facts) == set()


@pytest.mark.parametrize("line", [PLUGIN, FORK])
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"load_format": "dummy"}, "load-format-unread"),
        ({"load_format": "runai_streamer"}, "load-format-unread"),
        ({"revision": "v1.0"}, "revision-unread"),
        ({"load_format": "safetensors", "revision": "main"}, None),
        ({}, None),
    ],
)
def test_where_the_weights_come_from(line: str, settings: dict[str, Any], code: str | None) -> None:
    result = outcome(line, model="org/name", facts=shape(local=False), tensor_parallel_size=8, engine_args=settings)
    codes = {finding.code for finding in result.findings if finding.severity is WARNING}
    assert codes & {"load-format-unread", "revision-unread"} == ({code} if code else set())
    local = outcome(line, facts=shape(), tensor_parallel_size=8, engine_args={"revision": "v1.0"})
    assert "revision-unread" not in {finding.code for finding in local.findings}


@pytest.mark.parametrize(("line", "warned"), [(FORK, True), (PLUGIN, False)])
def test_adapters_that_may_not_reach_the_graph(line: str, warned: bool) -> None:
    adapters = {"lora_modules": {"sql": "/adapters/sql"}, "lora_target_modules": ("q_proj",)}
    assert severities(line, "lora-maybe-unread", facts=shape(), **adapters) == ({WARNING} if warned else set())
    assert severities(line, "lora-maybe-unread", facts=shape()) == set()


@pytest.mark.parametrize("line", [PLUGIN, FORK])
@pytest.mark.parametrize(("kind", "dtype", "starts"), [("gemma3", "half", False), ("gemma3", "bfloat16", True)])
def test_vllm_runs_no_gemma_in_float16(line: str, kind: str, dtype: str, starts: bool) -> None:
    made = severities(line, "dtype-of-model", facts=shape(model_type=kind), engine_args={"dtype": dtype})
    assert made == (set() if starts else {ERROR})


@pytest.mark.parametrize(
    ("line", "degree", "length", "more", "starts"),
    [
        (FORK, 24, 4096, {}, False),
        (FORK, 8, 4100, {}, False),
        (FORK, 32, 1000, {}, False),
        (FORK, 32, 4096, {}, True),
        (FORK, 24, 4096, {"sequence_parallel_enabled": False}, True),
        (FORK, 24, 4096, {"speculative_model": "/models/draft", "num_speculative_tokens": 4}, True),
        (FORK, 24, 4080, {"context_encoding_buckets": [240, 4080]}, True),
        (PLUGIN, 24, 4096, {}, True),
    ],
)
def test_the_fork_divides_prompts_among_ranks(
    line: str, degree: int, length: int, more: dict[str, Any], starts: bool
) -> None:
    settings = {"tensor_parallel_size": degree, "max_model_len": length, **more}
    made = severities(line, "sequence-parallel-lengths", facts=shape(heads=48, kv_heads=8), **settings)
    assert made == (set() if starts else {ERROR})


@pytest.mark.parametrize(
    ("line", "draft", "speculation", "severity"),
    [
        (PLUGIN, {}, "draft_model", WARNING),
        (PLUGIN, {"vocab_size": 32000}, "draft_model", ERROR),
        (PLUGIN, {"architectures": ("PhiForCausalLM",)}, "draft_model", ERROR),
        (PLUGIN, {"model_type": "qwen3_moe"}, "draft_model", None),
        (PLUGIN, {}, "eagle", ERROR),
        (FORK, {}, "draft_model", ERROR),
    ],
)
def test_a_draft_of_another_type(line: str, draft: dict[str, Any], speculation: str, severity: Severity | None) -> None:
    target = shape(model_type="qwen3_moe", architectures=(f"Qwen3Moe{CAUSAL}",), experts=128)
    own = shape(**{"model_type": "qwen3", "architectures": (f"Qwen3{CAUSAL}",), **draft})
    settings = {"speculation": speculation, "speculative_model": "/models/draft", "num_speculative_tokens": 4}
    made = severities(line, "draft-family", facts=target, draft_model=own, **settings)
    assert made == ({severity} if severity else set())


@pytest.mark.parametrize(
    ("name", "stored", "local", "severity"),
    [
        (f"Qwen3Moe{CAUSAL}", {"quant_method": "fp8", "weight_block_size": [128, 128]}, True, WARNING),
        (f"Qwen3Moe{CAUSAL}", {"quant_method": "fp8", "weight_block_size": [128, 128]}, False, ERROR),
        (f"Qwen3Moe{CAUSAL}", {"quant_method": "fp8"}, True, ERROR),
        (f"Qwen3{CAUSAL}", {"quant_method": "fp8", "weight_block_size": [128, 128]}, True, ERROR),
    ],
)
def test_fp8_weights_that_a_class_converts(name: str, stored: dict[str, Any], local: bool, severity: Severity) -> None:
    config = {"quantization_config": stored}
    facts = shape(model_type="qwen3_moe", architectures=(name,), config=config, local=local)
    assert severities(PLUGIN, "quantized-checkpoint", facts=facts) == {severity}


VISION = "vision_neuron_config"


@pytest.mark.parametrize(
    ("vision", "starts"),
    [
        ({}, True),
        ({"skip_warmup": True}, True),
        ({"buckets": [1, 16]}, True),
        ({"buckets": [17]}, False),
        ({"buckets": [17], "default_image_width": 320}, True),
        ({"fused_qkv": False}, False),
    ],
)
def test_the_vision_model_of_qwen2_vl(vision: dict[str, Any], starts: bool) -> None:
    facts = shape(model_type="qwen2_vl", architectures=(f"Qwen2VL{IMAGES}",))
    settings = {"facts": facts, "max_model_len": 4096, **({VISION: vision} if vision else {})}
    assert severities(PLUGIN, "vision-keys", **settings) == (set() if starts else {ERROR})
    if starts:
        args: Any = planned(PLUGIN, tensor_parallel_size=8, **settings).engine_args
        made = args["additional_config"]["override_neuron_config"][VISION]
        assert made == {"fused_qkv": True, "buckets": [1], **vision}


@pytest.mark.parametrize(
    ("code", "settings", "starts"),
    [
        ("vision-keys", {VISION: {"seq_len": 20000}}, False),
        ("vision-keys", {VISION: {"seq_len": 16384}}, True),
        ("model-with-images", {"text_neuron_config": {"cp_degree": 2}}, False),
        ("model-with-images", {"text_neuron_config": {"attention_dp_degree": 2}}, False),
        ("model-with-images", {"text_neuron_config": {"cp_degree": 1}}, True),
    ],
)
def test_what_qwen3_vl_does_not_have(code: str, settings: dict[str, Any], starts: bool) -> None:
    config = {"model_type": "qwen3_vl", "vision_config": {"spatial_merge_size": 2}}
    facts = shape(model_type="qwen3_vl", architectures=(f"Qwen3VL{IMAGES}",), config=config)
    assert severities(PLUGIN, code, facts=facts, max_model_len=4096, **settings) == (set() if starts else {ERROR})


@pytest.mark.parametrize(("rope", "starts"), [(YARN, False), ({"rope_type": "default"}, True), (None, True)])
def test_qwen3_vl_has_no_rotary_scaling(rope: dict[str, Any] | None, starts: bool) -> None:
    config = {"text_config": {"rope_scaling": rope, "hidden_size": 4096}}
    facts = shape(model_type="qwen3_vl", architectures=(f"Qwen3VL{IMAGES}",), config=config)
    assert severities(PLUGIN, "unsupported-model", facts=facts) == (set() if starts else {ERROR})
