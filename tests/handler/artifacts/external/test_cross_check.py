from __future__ import annotations

from typing import Any

import pytest

from handler.artifacts.external.cross_check import cross_check
from handler.config.finding import Severity
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan
from tests.handler.artifacts.artifact_files import SAVED

ARGS: dict[str, Json] = {
    "tensor_parallel_size": 2,
    "max_num_seqs": 4,
    "max_model_len": 4096,
    "dtype": "bfloat16",
    "block_size": 4096,
    "enable_prefix_caching": False,
}


def plan(override: dict[str, Json] | None = None, **args: Json) -> EnginePlan:
    additional: dict[str, Json] = {"override_neuron_config": override} if override is not None else {}
    return EnginePlan("nxdi-0.16", {**ARGS, "additional_config": additional, **args})


def saved(**changes: Json) -> dict[str, Json]:
    config = SAVED["neuron_config"]
    assert isinstance(config, dict)
    return {**SAVED, "neuron_config": {**config, **changes}}


def names(*arguments: Any, **options: Any) -> list[str]:
    return [finding.code.removeprefix("artifacts-differ-") for finding in cross_check(*arguments, **options)]


@pytest.mark.parametrize(
    ("override", "args"),
    [
        (None, {}),
        ({}, {"dtype": "auto"}),
        (None, {"dtype": "torch.bfloat16"}),
        ({"enable_bucketing": True, "on_device_sampling_config": {"dynamic": True}}, {}),
        ({"on_device_sampling_config": {"global_topk": 256.0}}, {}),
        ({"cp_degree": None, "fused_qkv": False}, {}),
        ({"quantized_checkpoints_path": "/elsewhere"}, {}),
        ({"seq_len": 4096, "max_context_length": 4096}, {"max_model_len": 1}),
        ({"batch_size": 4}, {"max_num_seqs": 9}),
    ],
)
def test_what_is_the_same_is_not_found(override: dict[str, Json] | None, args: dict[str, Json]) -> None:
    assert names(saved(), plan(override, **args), lnc=1) == []


@pytest.mark.parametrize(
    ("override", "args", "field", "values"),
    [
        (None, {"tensor_parallel_size": 8}, "tp-degree", ("2", "8")),
        (None, {"max_num_seqs": 16}, "batch-size", ("4", "16")),
        (None, {"dtype": "float16"}, "torch-dtype", ("bfloat16", "float16")),
        (None, {"enable_prefix_caching": True, "block_size": 4096}, "is-prefix-caching", ("False", "True")),
        ({"on_device_sampling_config": None}, {}, "on-device-sampling-config", ("on the device", "on the CPU")),
        ({"on_device_sampling_config": {"global_topk": 64}}, {}, "global-topk", ("256", "64")),
        ({"enable_bucketing": False}, {}, "enable-bucketing", ("True", "False")),
        ({"enable_bucketing": 1}, {}, "enable-bucketing", ("True", "1")),
        ({"logical_nc_config": 2}, {}, "logical-nc-config", ("1", "2")),
        ({"cp_degree": 4}, {}, "cp-degree", ("nothing", "4")),
        ({"max_context_length": 2048}, {}, "max-context-length", ("4096", "2048")),
        ({"tp_degree": 4}, {}, "tp-degree", ("2", "4")),
    ],
)
def test_each_difference_is_an_error_with_both_values(
    override: dict[str, Json] | None, args: dict[str, Json], field: str, values: tuple[str, str]
) -> None:
    findings = [finding for finding in cross_check(saved(), plan(override, **args)) if finding.code.endswith(field)]
    (finding,) = findings
    assert finding.severity is Severity.ERROR
    assert finding.code == f"artifacts-differ-{field}"
    assert f"= {values[0]}, but {values[1]} is requested" in finding.why


def test_a_length_differs_in_each_key_that_it_fills() -> None:
    findings = cross_check(saved(), plan(max_model_len=8192))
    assert {finding.setting for finding in findings} == {"max_model_len"}
    assert [finding.code for finding in findings] == ["artifacts-differ-seq-len", "artifacts-differ-max-context-length"]


def test_the_machines_lnc_counts() -> None:
    assert names(saved(), plan(), lnc=2) == ["logical-nc-config"]
    assert names(saved(), plan(), lnc=1) == []


def test_cpu_sampling_that_was_compiled_in() -> None:
    assert names(saved(on_device_sampling_config=None), plan()) == ["on-device-sampling-config"]
    assert names(saved(on_device_sampling_config=None), plan({"on_device_sampling_config": None})) == []


def test_blocks_may_have_the_null_block_that_the_plugin_adds() -> None:
    asked = plan(enable_prefix_caching=True, block_size=32, num_gpu_blocks_override=512)
    blocks: dict[str, Json] = {"is_prefix_caching": True, "pa_block_size": 32}
    assert names(saved(**blocks, pa_num_blocks=513), asked) == []
    assert names(saved(**blocks, pa_num_blocks=512), asked) == []
    assert names(saved(**blocks, pa_num_blocks=600), asked) == ["pa-num-blocks"]


def test_chunked_prefill_has_a_batch_of_one() -> None:
    assert names(saved(batch_size=1, max_context_length=512), plan(enable_chunked_prefill=True)) == []


def test_another_model_is_found_out() -> None:
    assert names(saved(), plan(), model_config={"hidden_size": 64}) == []
    (finding,) = cross_check(saved(), plan(), model_config={"hidden_size": 128})
    assert finding.setting == "ENDPOINT_MODEL"
    assert "hidden_size = 64, but 128" in finding.why


def test_a_multimodal_model_has_two_configurations() -> None:
    config = SAVED["neuron_config"]
    assert isinstance(config, dict)
    both: dict[str, Json] = {
        "text_config": {"hidden_size": 64, "neuron_config": config},
        "vision_config": {"neuron_config": {"tp_degree": 2, "batch_size": 1}},
    }
    override: dict[str, Json] = {
        "text_neuron_config": {"tp_degree": 2, "batch_size": 4},
        "vision_neuron_config": {"tp_degree": 2, "batch_size": 2},
    }
    (finding,) = cross_check(both, plan(override))
    assert finding.setting == "vision_neuron_config.batch_size"
    assert "batch_size = 1, but 2" in finding.why
    text: dict[str, Json] = {**override, "text_neuron_config": {"tp_degree": 4, "batch_size": 4}}
    assert "tp-degree" in names(both, plan(text))


def test_a_configuration_that_says_nothing_is_an_error() -> None:
    (finding,) = cross_check({"hidden_size": 64}, plan())
    assert finding.code == "artifacts-without-neuron-config"
