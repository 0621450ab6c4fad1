"""Keys that NxD Inference would ignore or misread are found."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import found, outcome

UNKNOWN: list[tuple[dict[str, Any], str, str]] = [
    (
        {"on_device_sampling_config": {"dynamic": True, "global_top_k": 64}},
        "on_device_sampling_config.global_top_k",
        "global_topk",
    ),
    ({"global_top_k": 64}, "global_top_k", "on_device_sampling_config.global_topk"),
    ({"enable_fused_speculatuon": True}, "enable_fused_speculatuon", "enable_fused_speculation"),
    ({"context_encoding_bucket": [128]}, "context_encoding_bucket", "context_encoding_buckets"),
    ({"chunked_prefill_config": {"max_num_seq": 4}}, "chunked_prefill_config.max_num_seq", "max_num_seqs"),
    ({"tp_degre": 8}, "tp_degre", "tp_degree"),
]


@pytest.mark.parametrize(("raw", "setting", "meant"), UNKNOWN)
def test_an_unknown_key_is_an_error_with_the_nearest_known_one(raw: dict[str, Any], setting: str, meant: str) -> None:
    finding = found(outcome("nxdi-0.16", neuron_config=raw), "unknown-neuron-key")
    assert finding.severity is Severity.ERROR
    assert finding.setting == setting
    assert f"'{meant}'" in finding.fix


def test_a_key_like_no_other_is_an_error_too() -> None:
    finding = found(outcome("nxdi-0.16", neuron_config={"flavour": "vanilla"}), "unknown-neuron-key")
    assert finding.severity is Severity.ERROR
    assert "Did you mean" not in finding.fix


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cc_pipeline_tiling_factor", "1"),
        ("skip_warmup", "true"),
        ("buckets", 128),
        ("cp_degree", True),
        ("max_length", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(key: str, value: object) -> None:
    finding = found(outcome("nxdi-0.16", neuron_config={key: value}), "neuron-key-type")
    assert finding.setting == key


def test_a_hyphenated_key_is_read_and_warned_of() -> None:
    result = outcome("nxdi-0.16", engine_args={"override_neuron_config": {"skip-warmup": True}})
    assert found(result, "hyphenated-key").severity is Severity.WARNING
    assert result.plan is not None
    assert result.plan.engine_args["additional_config"] == {"override_neuron_config": {"skip_warmup": True}}


def test_a_deprecated_key_is_a_warning() -> None:
    assert found(outcome("nxdi-0.16", neuron_config={"trace_tokengen_model": True}), "deprecated-neuron-key")


def test_a_key_inside_the_text_models_configuration_is_checked() -> None:
    result = outcome("nxdi-0.16", text_neuron_config={"enable_bucketting": True})
    assert found(result, "unknown-neuron-key").setting == "text_neuron_config.enable_bucketting"


def test_the_native_plugin_has_keys_of_its_own() -> None:
    near = found(outcome("native-0.24", neuron_config={"num_seq_buckets": [4]}), "unknown-neuron-key")
    assert near.severity is Severity.ERROR
    assert "num_seqs_buckets" in near.fix
    far = found(outcome("native-0.24", neuron_config={"hlo2tensorizer_options": "x"}), "unknown-neuron-key")
    assert far.severity is Severity.ERROR
