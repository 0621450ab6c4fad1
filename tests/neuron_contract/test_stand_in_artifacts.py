"""The artifacts directory: what is written, what is deleted, what loads, and what ends the engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.neuron_contract.small_model import CONFIG, serve, write_model


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def artifacts(tmp_path: Path) -> dict[str, str]:
    return {"NEURON_COMPILED_ARTIFACTS": str(tmp_path / "artifacts")}


def saved(directory: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((directory / "neuron_config.json").read_text())
    return document


def test_a_compile_writes_the_configuration_and_the_model(local: Path, artifacts: dict[str, str]) -> None:
    loaded = serve(local, artifacts)
    assert loaded.compiled
    assert sorted(path.name for path in loaded.directory.iterdir()) == ["model.pt", "neuron_config.json"]
    assert saved(loaded.directory)["_name_or_path"] == str(local)


def test_nothing_in_it_says_with_what_it_was_compiled(local: Path, artifacts: dict[str, str]) -> None:
    text = (serve(local, artifacts).directory / "neuron_config.json").read_text()
    assert not any(word in text for word in ("neuronx", "compiler_version", "sdk", "inf2"))


def test_beside_the_model_it_is_deleted_and_compiled_each_time(local: Path) -> None:
    first = serve(local, {})
    assert first.directory.parent == local / "neuron-compiled-artifacts"
    (first.directory / "mark").touch()
    second = serve(local, {})
    assert second.directory == first.directory
    assert second.compiled
    assert not (second.directory / "mark").exists()


def test_the_directory_beside_the_model_is_named_by_the_configuration(local: Path) -> None:
    assert serve(local, {}).directory != serve(local, {}, async_mode=True).directory


def test_given_artifacts_are_loaded_blindly(
    local: Path, artifacts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    serve(local, artifacts)
    other = {"max_model_len": 512, "max_num_seqs": 8, "block_size": 512, "tensor_parallel_size": 4}
    loaded = serve(local, artifacts, shape=other, async_mode=True)
    assert not loaded.compiled
    config = loaded.neuron_config
    assert (config["seq_len"], config["batch_size"], config["tp_degree"]) == (256, 2, 1)
    assert config["async_mode"] is False
    assert "override_neuron_config will be ignored" in caplog.text


@pytest.mark.parametrize("missing", ["model.pt", "neuron_config.json"])
def test_a_missing_file_leads_to_a_recompile(local: Path, artifacts: dict[str, str], missing: str) -> None:
    (serve(local, artifacts).directory / missing).unlink()
    assert serve(local, artifacts).compiled


def test_an_empty_directory_leads_to_a_recompile(local: Path, artifacts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    assert serve(local, artifacts).compiled


def test_a_configuration_that_is_no_json_leads_to_a_recompile(local: Path, artifacts: dict[str, str]) -> None:
    (serve(local, artifacts).directory / "neuron_config.json").write_text("{")  # JSONDecodeError is a ValueError
    assert serve(local, artifacts).compiled


def test_a_truncated_model_ends_the_engine(local: Path, artifacts: dict[str, str]) -> None:
    model = serve(local, artifacts).directory / "model.pt"
    model.write_bytes(model.read_bytes()[:-1000])
    with pytest.raises(RuntimeError, match=r"model\.pt"):
        serve(local, artifacts)


def test_a_damaged_model_ends_the_engine(local: Path, artifacts: dict[str, str]) -> None:
    model = serve(local, artifacts).directory / "model.pt"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"model\.pt"):
        serve(local, artifacts)


def test_files_of_two_compiles_do_not_mix(local: Path, artifacts: dict[str, str], tmp_path: Path) -> None:
    serve(local, artifacts)
    other = {"NEURON_COMPILED_ARTIFACTS": str(tmp_path / "other")}
    serve(local, other, async_mode=True)
    shutil.copy(tmp_path / "artifacts" / "model.pt", tmp_path / "other" / "model.pt")
    with pytest.raises(RuntimeError, match=r"another neuron_config\.json"):
        serve(local, other)


def test_a_model_of_another_shape_is_noticed(local: Path, artifacts: dict[str, str]) -> None:
    serve(local, artifacts)
    with pytest.raises(RuntimeError, match="of the shape"):
        serve(local, artifacts, shape={"hf_config": {**CONFIG, "hidden_size": 8}})


def test_without_shards_the_checkpoint_must_be_where_it_was(
    local: Path, artifacts: dict[str, str], tmp_path: Path
) -> None:
    serve(local, artifacts)
    local.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):  # the recompile finds no weights either ...
        serve(local, artifacts)
    moved = serve(tmp_path / "elsewhere", artifacts)
    assert moved.compiled  # ... and with the new path it compiles, although all was there


def test_a_checkpoint_in_the_artifacts_does_as_well(local: Path, artifacts: dict[str, str], tmp_path: Path) -> None:
    directory = serve(local, artifacts).directory
    local.rename(tmp_path / "elsewhere")
    shutil.copy(tmp_path / "elsewhere" / "model.safetensors", directory)
    assert not serve(tmp_path / "elsewhere", artifacts).compiled


def test_shards_are_written_for_each_rank_and_load_without_the_checkpoint(
    local: Path, artifacts: dict[str, str]
) -> None:
    first = serve(local, artifacts, shape={"tensor_parallel_size": 3}, save_sharded_checkpoint=True)
    names = sorted(path.name for path in (first.directory / "weights").iterdir())
    assert names == [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(3)]
    (local / "model.safetensors").unlink()
    second = serve(local, artifacts)
    assert not second.compiled
    assert second.tensors["a"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert second.tensors["b"].tolist() == [0, 1, 2]


def test_a_missing_shard_leads_to_a_recompile_and_a_damaged_one_to_the_end(
    local: Path, artifacts: dict[str, str]
) -> None:
    shards: dict[str, Any] = {"shape": {"tensor_parallel_size": 2}, "save_sharded_checkpoint": True}
    shard = serve(local, artifacts, **shards).directory / "weights/tp1_sharded_checkpoint.safetensors"
    shard.unlink()
    assert serve(local, artifacts, **shards).compiled
    shard.write_bytes(shard.read_bytes()[:20])
    with pytest.raises(Exception, match=r"(?i)header|deserializ"):
        serve(local, artifacts, **shards)


def test_skip_sharding_writes_none(local: Path, artifacts: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError, match="tp0_sharded_checkpoint"):  # and then it cannot load
        serve(local, artifacts, save_sharded_checkpoint=True, skip_sharding=True)
    assert not (Path(artifacts["NEURON_COMPILED_ARTIFACTS"]) / "weights").exists()


def test_quantized_weights_are_made_by_the_compile_and_needed_to_load(
    local: Path, artifacts: dict[str, str], tmp_path: Path
) -> None:
    quantized: dict[str, Any] = {"quantized": True, "quantized_checkpoints_path": str(tmp_path / "q")}
    serve(local, artifacts, **quantized)
    assert not serve(local, artifacts, **quantized).compiled
    (tmp_path / "q").unlink()  # pickled, because there was no directory
    assert serve(local, artifacts, **quantized).compiled


def test_quantized_without_a_path_raises(local: Path) -> None:
    with pytest.raises(AssertionError, match="quantized_checkpoints_path is required"):
        serve(local, {}, quantized=True)


def test_on_device_sampling_disabled_is_broken(local: Path) -> None:
    with pytest.raises(TypeError):
        serve(local, {"NEURON_ON_DEVICE_SAMPLING_DISABLED": "1"})


def test_chunked_prefill_is_not_implemented(local: Path) -> None:
    with pytest.raises(NotImplementedError, match="Chunked Prefill"):
        serve(local, {}, shape={"chunked_prefill": True, "block_size": 32, "max_num_batched_tokens": 256},
              chunked_prefill_config={"max_num_seqs": 2})  # fmt: skip


def test_a_fused_configuration_names_the_draft(local: Path, artifacts: dict[str, str]) -> None:
    draft = {"method": "draft_model", "num_speculative_tokens": 4, "model": "/draft"}
    document = serve(local, artifacts, shape={"speculation": draft}).document
    assert document["fused_spec_config"]["draft_model_path"] == "/draft"
    assert document["fused_spec_config"]["draft_config"]["neuron_config"]["enable_fused_speculation"] is False
