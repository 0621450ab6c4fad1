"""What optimum-neuron's plugin would end of, or ignore, is a finding with its setting."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sample_model
from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import INF2, TRN1, TRN2, found, llama, outcome
from tests.model_packaging.command import run

CHECKPOINT, WEIGHTS, SHARD = "checkpoint", "model.safetensors", "tp{}_sharded_checkpoint.safetensors"
# neuron_config.json, as optimum-neuron 0.4.5 writes it.
EXPORTED: dict[str, Any] = {
    "_serialized_key": "NxDNeuronConfig",
    "optimum_neuron_version": "0.4.5",
    "neuronxcc_version": "2.21.33363.0+82129205",
    "batch_size": 4,
    "sequence_length": 2048,
    "max_context_length": 2048,
    "tp_degree": 8,
    "torch_dtype": "bfloat16",
    "target": "trn1",
    "continuous_batching": True,
    "on_device_sampling": True,
    "max_topk": 256,
}


GRAMMARS = "structured_outputs_config"


def export(**changes: Any) -> dict[str, Any]:
    return {"facts": llama(exported={**EXPORTED, **changes})}


@pytest.mark.parametrize(
    ("code", "settings", "setting"),
    [
        ("not-on-optimum", {"engine_args": {"pipeline_parallel_size": 2}}, "pipeline_parallel_size"),
        ("not-on-optimum", {"engine_args": {"data_parallel_size": 2}}, "data_parallel_size"),
        ("not-on-optimum", {"engine_args": {"speculative_config": {"method": "ngram"}}}, "speculative_config"),
        ("not-on-optimum", {"quantization": "awq"}, "quantization"),
        ("not-on-optimum", {"engine_args": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype"),
        ("not-on-optimum", {"structured_outputs": True}, "structured_outputs"),
        ("not-on-optimum", {"logprobs": True}, "logprobs"),
        ("not-on-optimum", {"engine_args": {"task": "embed"}}, "task"),
        ("not-on-optimum", {"engine_args": {"runner": "pooling"}}, "runner"),
        ("not-on-optimum", {"engine_args": {"convert": "embed"}}, "convert"),
        ("rejected-by-vllm", {"engine_args": {"enable_eplb": True}}, "enable_eplb"),
        ("rejected-by-vllm", {"engine_args": {"config_format": "bogus"}}, "config_format"),
        (
            "rejected-by-vllm",
            {"engine_args": {"structured_outputs_config": {"backend": "bogus"}}},
            f"{GRAMMARS}.backend",
        ),
        ("memory-share", {"engine_args": {"gpu_memory_utilization": 0}}, "gpu_memory_utilization"),
        ("unsupported-model", {"facts": llama(model_type="mamba")}, "model"),
        ("unsupported-model", {"facts": llama(config={"quantization_config": {"quant_method": "fp8"}})}, "model"),
        ("unsupported-model", {"facts": llama(config={"quantization_config": {"quant_method": "awq"}})}, "model"),
        ("token-budget", {"engine_args": {"max_num_batched_tokens": 2048}}, "max_num_batched_tokens"),
        ("artifacts-differ-sequence-length", {**export(), "max_model_len": 4096}, "max_model_len"),
        ("artifacts-differ-batch-size", {**export(), "max_num_seqs": 5}, "max_num_seqs"),
        ("artifacts-differ-tp-degree", {**export(), "tensor_parallel_size": 4}, "tensor_parallel_size"),
        ("artifacts-differ-torch-dtype", {**export(), "dtype": "float32"}, "dtype"),
        ("artifacts-differ-on-device-sampling", {**export(), "on_device_sampling": False}, "on_device_sampling"),
        ("artifacts-differ-max-context-length", export(max_context_length=1024), "max_model_len"),
        ("artifacts-differ-continuous-batching", export(continuous_batching=False), "model"),
        ("artifacts-differ-target", {**export(target="trn2"), "instance": INF2}, "instance"),
        ("export-invalid", export(_serialized_key="HloNeuronConfig"), "model"),
        ("export-invalid", export(neuronxcc_version=None), "model"),
        ("export-invalid", export(batch_size="4"), "model"),
        ("export-invalid", {**export(tp_degree=True), "instance": INF2}, "model"),
        ("export-invalid", export(torch_dtype=16), "model"),
        ("line-platform", {"instance": TRN2}, "line"),
    ],
)
def test_what_the_plugin_does_not_have_or_has_compiled_otherwise(
    code: str, settings: dict[str, Any], setting: str
) -> None:
    result = outcome("optimum", **settings)
    finding = found(result, code)
    assert (finding.severity, finding.setting) == (Severity.ERROR, setting)
    assert result.plan is None


ON_THE_FLY = {"engine_args": {"model_loader_extra_config": "allow_non_cached_model"}}


@pytest.mark.parametrize(
    ("settings", "severity", "words", "unchecked"),
    [
        ({}, Severity.WARNING, "exactly max_model_len 4096, max_num_seqs 32, tensor_parallel_size 8 and bfloat16", 1),
        (ON_THE_FLY, Severity.WARNING, "each start compiles it", 0),
        ({"network_isolation": True}, Severity.ERROR, "does not reach the hub's cache", 0),
    ],
)
def test_a_model_that_is_not_exported_needs_graphs_of_the_hub(
    settings: dict[str, Any], severity: Severity, words: str, unchecked: int
) -> None:
    """The plan makes up a shape, and the hub's cache may not have it: the status of `check` is not 0."""
    result = outcome("optimum", facts=llama(), instance=INF2, **{"tensor_parallel_size": 8, **settings})
    finding = found(result, "optimum-needs-export")
    assert (finding.severity, words in finding.why) == (severity, True), finding
    assert sum(each.code == "not-checked" for each in result.findings) == unchecked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logits_processors", ["my.processor.Class"]),
        ("cpu_offload_gb", 4),
        ("enforce_eager", True),
        ("kv_cache_memory_bytes", 2**30),
        ("hf_overrides", {"rope_theta": 10000.0}),
    ],
)
def test_what_the_plugin_does_not_read_is_a_warning(name: str, value: Any) -> None:
    result = outcome("optimum", **export(), engine_args={name: value})
    assert (result.plan is not None, found(result, "unread-on-optimum").setting) == (True, name)


@pytest.mark.parametrize("line", ["nxdi-0.16", "native-0.29", "fork-0.9.1", "fork-0.9.1-tnx", "cpu"])
def test_no_other_line_loads_an_export(line: str) -> None:
    """Beside the original weights, which they load, it may be."""
    alone = outcome(line, facts=llama(exported=EXPORTED, weight_bytes=None))
    assert found(alone, "unsupported-model").fix == "Set ENDPOINT_LINE to optimum, or give the original model."
    assert outcome(line, **export()).plan is not None


OLDER = {"optimum_neuron_version": "0.4.4", "neuronxcc_version": "2.20.1+ab"}
HERE = {"vllm": "0.11.0", "optimum-neuron": "0.4.5", "neuronx-cc": "2.21.33363.0+82129205"}


@pytest.mark.parametrize(
    ("keys", "installed", "severities"),
    [
        ({}, HERE, []),
        (OLDER, HERE, [Severity.ERROR, Severity.ERROR]),
        (OLDER, HERE | {"optimum-neuron": "0.4.4"}, [Severity.ERROR]),
        (OLDER, {}, [Severity.WARNING, Severity.INFO]),
        ({}, {}, [Severity.INFO]),
    ],
)
def test_an_export_of_another_version_does_not_load(
    keys: dict[str, str], installed: dict[str, str], severities: list[Severity]
) -> None:
    """Where the image is not known, its version is: the one that the export names."""
    result = outcome("optimum", **export(**keys), installed=installed)
    of_versions = [finding for finding in result.findings if finding.code.endswith("-version")]
    assert [finding.severity for finding in of_versions] == severities
    assert all(finding.setting == "model" for finding in of_versions)


@pytest.mark.parametrize("asked", [{}, {"max_model_len": 1024, "max_num_seqs": 2}])
@pytest.mark.parametrize("instance", [INF2, TRN1])
def test_an_export_completes_the_plan(asked: dict[str, Any], instance: Any) -> None:
    result = outcome("optimum", **export(), **asked, instance=instance)
    assert result.plan is not None, result.errors
    args = result.plan.engine_args
    assert {name: args[name] for name in ("max_model_len", "max_num_seqs", "tensor_parallel_size", "dtype")} == {
        **{"max_model_len": 2048, "max_num_seqs": 4, "tensor_parallel_size": 8, "dtype": "bfloat16"},
        **asked,
    }
    assert "optimum-needs-export" not in {finding.code for finding in result.findings}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The sample model as optimum-neuron exports it."""
    directory = tmp_path / "export"
    (directory / CHECKPOINT).mkdir(parents=True)
    for file in sample_model.path().glob("*.json"):
        (directory / file.name).write_bytes(file.read_bytes())
    (directory / "neuron_config.json").write_text(json.dumps({**EXPORTED, "tp_degree": 2}))
    (directory / "model.pt").write_bytes(b"graphs")
    shutil.copy(sample_model.path() / WEIGHTS, directory / CHECKPOINT)
    return directory


def checked(directory: Path, **variables: str) -> tuple[int, list[tuple[str, str]]]:
    """The status of `check`, and the code and the setting of each error and warning."""
    file = directory.parent / "endpoint.env"
    file.write_text("\n".join(f"{name}={value}" for name, value in {"ENDPOINT_LINE": "optimum", **variables}.items()))
    result = run("check", "--json", "--env-file", str(file), "--instance", "ml.trn1.2xlarge", directory)
    findings = json.loads(result.stdout)["findings"]
    return result.exit_code, [(each["code"], each["setting"]) for each in findings if each["severity"] != "info"]


def divided(*ranks: int) -> Callable[[Path], Any]:
    """The weights as the exporter saves those of a directory: divided among the ranks."""

    def change(directory: Path) -> None:
        (directory / CHECKPOINT / "weights").mkdir()
        for rank in ranks:
            shutil.copy(directory / CHECKPOINT / WEIGHTS, directory / CHECKPOINT / "weights" / SHARD.format(rank))
        (directory / CHECKPOINT / WEIGHTS).unlink()

    return change


def on_hub(directory: Path) -> None:
    """As `push_to_hub` leaves an export of a model that is on the hub."""
    shutil.rmtree(directory / CHECKPOINT)
    keys = {**EXPORTED, "tp_degree": 2, "checkpoint_id": "org/model"}
    (directory / "neuron_config.json").write_text(json.dumps(keys))


ON_HUB, UNREAD = ("weights-on-hub", "weights"), ("unread-on-optimum", "SM_VLLM_LOAD_FORMAT")
STREAMED, ISOLATED = {"SM_VLLM_LOAD_FORMAT": "runai_streamer"}, {"ENDPOINT_NETWORK_ISOLATION": "true"}


@pytest.mark.parametrize(
    ("change", "variables", "status", "findings"),
    [
        (lambda _: None, {}, 0, []),
        (divided(0, 1), {}, 0, []),
        (divided(0), {}, 1, [("model-files", SHARD.format(1))]),
        (lambda place: shutil.rmtree(place / CHECKPOINT), {}, 1, [("model-files", "weights")]),
        (lambda place: os.truncate(place / CHECKPOINT / WEIGHTS, 999), {}, 1, [("model-files", WEIGHTS)]),
        (on_hub, {}, 0, [ON_HUB]),
        (on_hub, ISOLATED, 1, [ON_HUB]),
        (lambda place: (place / "model.pt").unlink(), {}, 1, [("model-files", "model.pt")]),
        (lambda place: (place / "model.pt").unlink(), STREAMED, 1, [("model-files", "model.pt"), UNREAD]),
        (lambda _: None, STREAMED, 0, [UNREAD]),
        (
            *(lambda place: (place / "neuron_config.json").write_text("{}"), {}, 1),
            [("model-files", "neuron_config.json"), ("optimum-needs-export", "MODEL")],
        ),
        (
            *(lambda _: None, {"SM_VLLM_TENSOR_PARALLEL_SIZE": "1"}, 1),
            [("artifacts-differ-tp-degree", "SM_VLLM_TENSOR_PARALLEL_SIZE")],
        ),
    ],
)
def test_check_reads_the_files_of_an_export(
    directory: Path,
    change: Callable[[Path], Any],
    variables: dict[str, str],
    status: int,
    findings: list[tuple[str, str]],
) -> None:
    """As a user types it. A sound one has nothing that could not be checked, and so a status of 0."""
    change(directory)
    seen, reported = checked(directory, **variables)
    assert (seen, [(code, Path(setting).name) for code, setting in reported]) == (status, findings)
