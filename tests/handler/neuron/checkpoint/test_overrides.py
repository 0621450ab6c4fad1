"""`hf_overrides` change what vLLM reads in config.json, and so what `check` finds."""

from __future__ import annotations

import json
from typing import Final

import pytest

import sample_model
from handler.config.finding import Finding, Severity
from handler.config.loading.config_loader import load
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import facts_from, overridden, with_overrides
from handler.neuron.planning.examination import Examination, examine_config
from handler.neuron.planning.file_examination import with_files

MODEL: Final = str(sample_model.path())
SETTING: Final = "SM_VLLM_HF_OVERRIDES"
ON_TRN2: Final = {"ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}
YARN: Final[dict[str, Json]] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}


def examined(overrides: Json, **environ: str) -> Examination:
    config = load({SETTING: json.dumps(overrides), **environ}, model=MODEL)
    return with_files(examine_config(config, build=None))


def errors(overrides: Json, **environ: str) -> list[Finding]:
    return [finding for finding in examined(overrides, **environ).findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("environ", [{}, ON_TRN2, {"ENDPOINT_LINE": "nxdi-0.16", **ON_TRN2}], ids=str)
def test_an_architecture_that_vllm_does_not_have(environ: dict[str, str]) -> None:
    found = errors({"architectures": ["Nope"]}, **environ)
    assert [finding.setting for finding in found if "no architecture 'Nope'" in finding.why] == [SETTING]


@pytest.mark.parametrize("environ", [{}, ON_TRN2], ids=str)
def test_heads_that_a_degree_does_not_divide(environ: dict[str, str]) -> None:
    found = errors({"num_attention_heads": 7}, SM_VLLM_TENSOR_PARALLEL_SIZE="2", **environ)
    assert [finding.setting for finding in found if "2 does not divide the model's 7" in finding.why] == [
        "SM_VLLM_TENSOR_PARALLEL_SIZE"
    ]


def test_nxd_inference_reads_the_heads_in_the_file() -> None:
    environ = {"ENDPOINT_LINE": "nxdi-0.16", "SM_VLLM_TENSOR_PARALLEL_SIZE": "2", **ON_TRN2}
    assert errors({"num_attention_heads": 7}, **environ) == []


def test_a_shorter_model_refuses_its_former_length_and_a_longer_one_takes_its_new_one() -> None:
    (finding,) = errors({"max_position_embeddings": 1024}, SM_VLLM_MAX_MODEL_LEN="2048")
    assert (finding.setting, finding.code) == ("SM_VLLM_MAX_MODEL_LEN", "length-beyond-model")
    longer = examined({"max_position_embeddings": 4096}, SM_VLLM_MAX_MODEL_LEN="4096")
    assert "length-beyond-model" not in {finding.code for finding in longer.findings}


@pytest.mark.vllm_016("transformers 5 takes a rotary scaling, too")
def test_rotary_parameters_change_the_length_and_a_rotary_scaling_comes_too_late() -> None:
    assert errors({"rope_parameters": YARN}, SM_VLLM_MAX_MODEL_LEN="8192") == []
    (finding,) = errors({"rope_scaling": YARN}, SM_VLLM_MAX_MODEL_LEN="8192")
    assert finding.code == "length-beyond-model"


def test_a_shape_that_is_not_the_weights() -> None:
    (finding,) = errors({"num_hidden_layers": 5})
    assert finding.setting == "weights"
    assert "model.layers.4." in finding.why


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"rope_theta": 20000.0},
        {"architectures": ["LlamaForCausalLM"]},
        {"model_type": "nope", "quantization_config": None, "auto_map": None},
    ],
    ids=str,
)
def test_what_vllm_takes_is_no_error(overrides: Json) -> None:
    assert errors(overrides) == []


def test_an_object_is_merged_into_a_part_and_replaces_any_other_value() -> None:
    config: dict[str, Json] = {
        "model_type": "llava",
        "text_config": {"num_attention_heads": 8, "hidden_size": 256},
        "quantization_config": {"quant_method": "awq", "bits": 4},
    }
    changed = overridden(config, {"text_config": {"num_attention_heads": 4}, "quantization_config": {}})
    assert changed["text_config"] == {"num_attention_heads": 4, "hidden_size": 256}
    assert changed["quantization_config"] == {}
    facts = with_overrides(facts_from(config, "m", True), {"text_config": {"num_attention_heads": 4}})
    assert (facts.heads, facts.hidden_size) == (4, 256)
