"""`neuron-endpoint migrate`, on environments as people have them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import sample_model
from tests.model_packaging.command import run

MODEL = str(sample_model.path())


def migrated(directory: Path, **variables: str) -> tuple[dict[str, tuple[str, str]], dict[str, Any], dict[str, Any]]:
    file = directory / "endpoint.env"
    settings = {"SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "SM_VLLM_MAX_NUM_SEQS": "8", **variables}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ["migrate", "--json", "--instance", "ml.trn2.48xlarge", "--env-file", str(file), MODEL]
    result = run(*words)
    report = json.loads(result.stdout)
    rows = {row["setting"]: (row["outcome"], row["note"]) for row in report["settings"]}
    return rows, yaml.safe_load(report["document"]), report


def errors(report: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in report["findings"] if finding["severity"] == "error"]


def test_the_example_of_the_migration_guide(tmp_path: Path) -> None:
    """Source: "How to migrate from NxD Inference to vLLM Neuron", guide 1, step 2."""
    rows, document, report = migrated(
        tmp_path,
        VLLM_NEURON_FRAMEWORK="neuronx-distributed-inference",
        SM_VLLM_DEVICE="neuron",
        SM_VLLM_MAX_MODEL_LEN="1024",
        SM_VLLM_OVERRIDE_NEURON_CONFIG=json.dumps(
            {"on_device_sampling_config": {"dynamic": True}, "context_encoding_buckets": [128, 256, 512]}
        ),
    )
    assert errors(report) == []
    assert rows["VLLM_NEURON_FRAMEWORK"][0] == rows["SM_VLLM_DEVICE"][0] == "automatic"
    assert rows["SM_VLLM_OVERRIDE_NEURON_CONFIG.on_device_sampling_config.dynamic"][0] == "automatic"
    assert rows["SM_VLLM_OVERRIDE_NEURON_CONFIG.context_encoding_buckets"][0] == "translated"
    assert document["context_encoding_buckets"] == [128, 256, 512, 1024]
    assert document["on_device_sampling"] is True
    assert not {"neuron_env", "engine_args", "neuron_config"} & document.keys()


@pytest.mark.parametrize(
    ("override", "outcome", "document"),
    [
        ({"tp_degree": 2, "seq_len": 512}, "translated", {"max_model_len": 512}),
        ({"attn_kernel_enabled": True, "cc_pipeline_tiling_factor": 1, "logical_nc_config": 2}, "automatic", {}),
        ({"cp_degree": 4}, "not available", {}),
        ({"quantized": True, "quantization_dtype": "f8e4m3"}, "not available", {}),
        ({"on_device_sampling_config": None}, "translated", {"on_device_sampling": False}),
        (
            {"on_device_sampling_config": {"global_topk": 64}},
            "translated",
            {"neuron_config": {"on_device_sampling_config": {"all_greedy": False, "max_top_k": 64}}},
        ),
        ({"is_prefix_caching": True, "seq_len": 1024}, "translated", {"enable_prefix_caching": True}),
        ({"async_mode": False}, "translated", {"async_mode": False}),
        ({"num_seqs_buckets": [4, 8]}, "kept", {"neuron_config": {"num_seqs_buckets": [4, 8]}}),
        ({"token_generation_buckets": [200, 1024], "seq_len": 1024}, "translated", {"token_generation_buckets": [256]}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_key_of_the_override(
    tmp_path: Path, override: dict[str, Any], outcome: str, document: dict[str, Any]
) -> None:
    rows, written, report = migrated(tmp_path, SM_VLLM_OVERRIDE_NEURON_CONFIG=json.dumps(override))
    assert outcome in [found for name, (found, _) in rows.items() if name.startswith("SM_VLLM_OVERRIDE")]
    assert errors(report) == []
    assert {key: written.get(key) for key in document} == document
    assert "quantization" not in written


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seq_len", "long"),
        ("batch_size", {"a": 1}),
        ("context_encoding_buckets", True),
        ("tp_degree", []),
        ("ep_degree", "2"),
        ("quantized", "true"),
    ],
)
def test_a_key_with_a_value_of_another_kind_is_named(tmp_path: Path, key: str, value: Any) -> None:
    (tmp_path / "endpoint.env").write_text(f"SM_VLLM_OVERRIDE_NEURON_CONFIG={json.dumps({key: value})}")
    words = ["migrate", "--json", "--env-file", str(tmp_path / "endpoint.env"), MODEL]
    (finding,) = json.loads(run(*words).stdout)["findings"]
    assert finding["setting"] == f"SM_VLLM_OVERRIDE_NEURON_CONFIG.{key}"


def test_settings_without_a_counterpart_are_named_with_the_consequence(tmp_path: Path) -> None:
    rows, document, report = migrated(
        tmp_path,
        NEURON_RT_VISIBLE_CORES="0-7",
        VLLM_NEURON_COMPILATION_TIMEOUT="1200",
        SM_VLLM_ENABLE_LORA="true",
        ENDPOINT_SPECULATIVE_MODEL="s3://bucket/draft",
        ENDPOINT_NUM_SPECULATIVE_TOKENS="5",
        ENDPOINT_ENABLE_CHUNKED_PREFILL="false",
        SM_VLLM_MAX_MODEL_LEN="32768",
    )
    assert "EAGLE3" in rows["ENDPOINT_SPECULATIVE_MODEL"][1]
    assert "adapter" in rows["SM_VLLM_ENABLE_LORA"][1]
    assert "NEURON_VISIBLE_DEVICES" in rows["NEURON_RT_VISIBLE_CORES"][1]
    assert rows["VLLM_NEURON_COMPILATION_TIMEOUT"] == ("translated", "NEURON_LIBTORCH_COMPILATION_TIMEOUT")
    assert document["neuron_env"] == {"NEURON_LIBTORCH_COMPILATION_TIMEOUT": "1200"}
    assert rows["ENDPOINT_ENABLE_CHUNKED_PREFILL"][0] == "not available"
    assert errors(report) == ["length-beyond-model"]


@pytest.mark.parametrize("keys", [("quantized", "quantization_dtype"), ("quantization_dtype", "quantized")])
def test_each_of_two_keys_for_one_setting_gets_a_row(tmp_path: Path, keys: tuple[str, str]) -> None:
    override = {"quantized": True, "quantization_dtype": "f8e4m3"}
    ordered = json.dumps({key: override[key] for key in keys})
    rows, _, _ = migrated(tmp_path, SM_VLLM_OVERRIDE_NEURON_CONFIG=ordered)
    assert {f"SM_VLLM_OVERRIDE_NEURON_CONFIG.{key}" for key in keys} <= rows.keys()


@pytest.mark.parametrize("on_miss", ["fail", "wait"])
def test_a_start_that_may_not_compile_is_told_that_there_is_nothing_yet(tmp_path: Path, on_miss: str) -> None:
    rows, _, _ = migrated(tmp_path, ENDPOINT_ON_MISS=on_miss, ENDPOINT_ARTIFACT_STORE="s3://bucket/store")
    assert rows["ENDPOINT_ON_MISS"][0] == "kept"
    assert "`neuron-endpoint compile` first" in rows["ENDPOINT_ON_MISS"][1]


def test_a_token_is_in_neither_table_nor_document(tmp_path: Path) -> None:
    rows, document, report = migrated(tmp_path, HF_TOKEN="hf_VerySecret1234")
    assert "hf_token" not in document
    assert "hf_VerySecret1234" not in json.dumps(report)
    assert rows["HF_TOKEN"] == ("kept", "set HF_TOKEN in the environment: the document holds no secret")
    (tmp_path / "old.yaml").write_text("hf_token: hf_VerySecret1234\n")
    result = run("migrate", "--json", "--instance", "ml.trn2.48xlarge", "--config", str(tmp_path / "old.yaml"), MODEL)
    assert "hf_VerySecret1234" not in result.output
    assert [row["value"] for row in json.loads(result.stdout)["settings"] if "hf_token" in row["setting"]] == ["***"]


def test_inf2_stays_on_nxd_inference(tmp_path: Path) -> None:
    document = tmp_path / "endpoint.yaml"
    document.write_text("instance: ml.inf2.24xlarge\n")
    result = run("migrate", "--json", "--config", document, MODEL)
    assert result.exit_code == 1
    assert "Stay on NxD Inference" in json.loads(result.stdout)["findings"][0]["fix"]


def test_the_settings_beside_the_model_are_migrated_as_check_reads_them(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    (model / "endpoint.yaml").write_text("max_context_length: 1024\nfused_qkv: true\n")
    given = {}
    for name, words in (("argument", [str(model)]), ("variable", [])):
        environ = {} if words else {"ENDPOINT_MODEL": str(model)}
        settings = ["--env", "--json", "--instance", "ml.trn2.48xlarge"]
        result = run("migrate", *settings, *words, **environ)
        report = json.loads(result.stdout)
        given[name] = [row for row in report["settings"] if row["setting"] != "ENDPOINT_MODEL"]
        document = yaml.safe_load(report["document"])
        assert document.pop("model", None) == (None if words else str(model))
        given[f"{name} document"] = document
    assert [row["setting"] for row in given["argument"]][:1] != []
    assert any("fused_qkv" in row["setting"] for row in given["argument"])
    assert given["argument"] == given["variable"]
    assert given["argument document"] == given["variable document"]


def test_what_stays_beside_the_model_is_named_until_it_is_removed(tmp_path: Path) -> None:
    model, output = tmp_path / "model", tmp_path / "new.yaml"
    shutil.copytree(MODEL, model)
    dropped = {"ctx_batch_size": 1, "skip_warmup": True, "enable_lora": True, "neuron_config": {"cp_degree": 4}}
    beside = model / "endpoint.yaml"
    beside.write_text(yaml.safe_dump({"max_model_len": 1024, "tensor_parallel_size": 2, **dropped}))
    words = ("--json", "--instance", "ml.trn2.48xlarge")
    result = run("migrate", *words, "--output", output, model)
    settings = {one["setting"] for one in json.loads(result.stdout)["findings"] if one["code"] == "left-beside-model"}
    names = ("ctx_batch_size", "skip_warmup", "enable_lora", "neuron_config.cp_degree")
    assert settings == {f"{name} in {beside}" for name in names}
    assert (result.exit_code, run("check", *words, "--config", output, model).exit_code) == (1, 1)
    beside.write_text(yaml.safe_dump({"max_model_len": 1024, "tensor_parallel_size": 2}))
    assert run("check", *words, "--config", output, model).exit_code == 0
    assert run("migrate", *words, model).exit_code == 0


def test_the_documents_model_is_the_settings_own(tmp_path: Path) -> None:
    for place in ("org/other", MODEL):
        _, document, _ = migrated(tmp_path, ENDPOINT_MODEL=place)
        assert document["model"] == place


def test_an_instance_that_there_is_not_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    output = tmp_path / "out.yaml"
    result = run("migrate", "--instance", "nope", "--output", output, MODEL)
    assert result.exit_code == 2, result.output
    assert "--instance" in result.output
    assert not output.exists()
