"""From any environment to a plan or to named findings: settings, planner and estimate together."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_model
from handler.config.dialects import lmi
from handler.config.dialects import neuron_variables as neuron
from handler.config.fields import fields
from handler.config.finding import Severity
from handler.config.vllm_argument_table import known
from handler.neuron.planning.file_examination import with_files
from model_packaging.examination_report import examine

MODEL = str(sample_model.path())
LINES = ["nxdi-0.16", "nxdi-0.13", "native-0.24", "fork-0.9.1", "fork-0.7.2", "optimum", "cpu", "no-line", ""]
NAMES = st.sampled_from(
    [
        *(f"ENDPOINT_{name.upper()}" for name in fields() if name not in {"compiled_artifacts", "speculative_model"}),
        *(f"SM_VLLM_{name.upper()}" for name in known() if name != "speculative_model"),
        *(f"OPTION_{name.upper()}" for name in lmi.OPTIONS if "model" not in name),
        *(name for name in neuron.KNOWN if "ARTIFACTS" not in name),
    ]
)
KEYS = st.sampled_from(
    ["tp_degree", "batch_size", "on_device_sampling_config", "async_mode", "cp_degree", "torch_dtype"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.sampled_from(
    ["true", "false", "0", "1", "8", "64", "4096", "1,2", "eagle", "int8", "fp8", "bfloat16", "prefill"]
)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(NAMES, TEXTS | VALUES.map(json.dumps), max_size=6),
    st.sampled_from(["ml.trn1.32xlarge", "ml.trn2.48xlarge", "ml.inf2.xlarge", None]),
    st.sampled_from(LINES),
)
def test_any_environment_gives_a_plan_or_named_findings(
    environ: dict[str, str], instance: str | None, line: str
) -> None:
    found = examine(environ, MODEL, instance=instance, line=line or None, fetch=lambda location: None)
    assert found.failed or found.plan is not None
    assert all(finding.code and finding.setting and finding.why and finding.fix for finding in found.findings)
    json.dumps(found.document(), allow_nan=False)
    if found.plan is not None:
        json.dumps(found.plan.document(), allow_nan=False)


@pytest.mark.parametrize("line", ["nxdi-0.16", "nxdi-0.13"])
def test_memory_is_estimated_for_what_the_plan_chose(line: str) -> None:
    found = examine({}, MODEL, instance="ml.trn1.32xlarge", line=line, fetch=lambda location: None)
    assert found.plan is not None
    assert found.memory is not None
    for name in ("tensor_parallel_size", "max_model_len", "max_num_seqs"):
        assert found.memory[name] == found.plan.engine_args[name]


@pytest.mark.parametrize(
    ("instance", "line", "warned"),
    [
        ("ml.trn2.48xlarge", "nxdi-0.16", True),
        ("ml.trn2.48xlarge", None, False),
        ("ml.trn1.32xlarge", "nxdi-0.16", False),
        ("ml.inf2.xlarge", None, False),
    ],
)
def test_a_line_whose_support_ends_is_warned_of(instance: str, line: str | None, warned: bool) -> None:
    found = examine({}, MODEL, instance=instance, line=line, fetch=lambda location: None)
    ending = [finding for finding in found.findings if finding.code == "line-support-ends"]
    assert [finding.severity for finding in ending] == [Severity.WARNING] * warned
    assert all("SDK 2.34" in finding.why and "native-0.29" in finding.fix for finding in ending)


@pytest.mark.parametrize(("instance", "said"), [("trn2.3xlarge", True), ("trn2.48xlarge", False)])
def test_a_plan_for_no_endpoint_of_sagemaker_says_so(instance: str, said: bool) -> None:
    found = examine({}, MODEL, instance=instance, line="native-0.29", fetch=lambda location: None)
    assert found.plan is not None
    assert [finding.severity for finding in found.findings if finding.code == "not-hosted"] == [Severity.INFO] * said


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"OPTION_QUANTIZE": "static_int8"}, "nxdi-0.16"),
        ({"SM_VLLM_TOOL_CALL_PARSER": "gemma4", "SM_VLLM_TENSOR_PARALLEL_SIZE": "3"}, "native-0.29"),
    ],
)
def test_files_are_examined_for_the_planned_line_also_without_a_plan(environ: dict[str, str], line: str) -> None:
    unnamed, named = (
        with_files(examine(environ, MODEL, instance="ml.trn2.48xlarge", line=name)) for name in (None, line)
    )
    assert unnamed.plan is None
    assert unnamed.line == line
    assert unnamed.findings == named.findings
    assert not any("of vLLM 0.16.0" in finding.why for finding in unnamed.findings)


@pytest.mark.parametrize(
    "environ",
    [{"ENDPOINT_PORT": "9000"}, {"SAGEMAKER_BIND_TO_PORT": "9000"}, {"SAGEMAKER_PROGRAM": "predict.py"}],
    ids=lambda environ: next(iter(environ)),
)
def test_what_only_the_container_would_refuse_is_an_error_of_its_variable(environ: dict[str, str]) -> None:
    found = examine(environ, MODEL, instance="ml.trn1.32xlarge", line=None)
    assert [one.setting for one in found.findings if one.severity is Severity.ERROR] == [*environ]


@pytest.mark.parametrize(
    ("line", "environ"),
    [
        ("cpu", {"ENDPOINT_SCRATCH": "s3://b/x"}),
        ("cpu", {"ENDPOINT_SCRATCH": "~/x"}),
        ("nxdi-0.16", {"ENDPOINT_BATCH_STORE": "file:///opt/ml/model/b"}),
        ("nxdi-0.16", {"ENDPOINT_ARTIFACT_DEADLINE": "-5"}),
        ("cpu", {"ENDPOINT_LORA_MODULES": '{"a": "org/adapter"}', "ENDPOINT_ENABLE_LORA": "true"}),
        ("nxdi-0.16", {"SM_VLLM_PIPELINE_PARALLEL_SIZE": "0"}),
        ("fork-0.9.1", {"SM_VLLM_PIPELINE_PARALLEL_SIZE": "-1"}),
        ("cpu", {"SM_VLLM_DATA_PARALLEL_SIZE": "-1"}),
        ("cpu", {"SM_VLLM_MODEL_LOADER_EXTRA_CONFIG": '{"concurrency": 16}'}),
    ],
    ids=str,
)
def test_places_and_counts_with_which_no_start_works(line: str, environ: dict[str, str]) -> None:
    instance = None if line == "cpu" else "ml.trn1.32xlarge"
    found = examine({"SM_VLLM_MAX_MODEL_LEN": "512", **environ}, MODEL, instance=instance, line=line)
    assert {one.setting for one in found.findings if one.severity is Severity.ERROR} & {
        *environ,
        *(name.lower().removeprefix("endpoint_").removeprefix("sm_vllm_") for name in environ),
    }


@pytest.mark.parametrize("line", ["cpu", "nxdi-0.16", "native-0.29", "native-0.24", "fork-0.9.1", "optimum"])
def test_no_small_number_in_any_argument_ends_a_check(line: str) -> None:
    instance = {"cpu": None, "native-0.29": "ml.trn2.48xlarge", "native-0.24": "ml.trn2.48xlarge"}
    for name, argument in known().items():
        for text in ("0", "-1") if argument.kind in ("int", "float") else ():
            environ = {"SM_VLLM_MAX_MODEL_LEN": "512", f"SM_VLLM_{name.upper()}": text}
            assert examine(environ, MODEL, instance=instance.get(line, "ml.trn1.32xlarge"), line=line).findings
