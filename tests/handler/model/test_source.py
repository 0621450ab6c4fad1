from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError
from handler.model import model_source as source
from handler.model.model_source import Model, fetch_model
from handler.neuron.checkpoint.checkpoint_reader import second_formats
from handler.storage.transfer.transfer_progress import ByteProgress
from tests.small_model import write_small_model


def config_of(model: str, scratch: Path = Path("/nowhere")) -> EndpointConfig:
    return EndpointConfig(
        model=model, sources={"model": ValueSource(Origin.ENVIRONMENT, "HF_MODEL_ID")}, scratch=scratch
    )


def refused(model: str) -> SettingError:
    with pytest.raises(SettingError) as caught:
        fetch_model(config_of(model))
    assert caught.value.setting == "HF_MODEL_ID"
    return caught.value


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "model" / "nested").mkdir(parents=True)
    (tmp_path / "model" / "nested" / "weights").write_bytes(b"x" * 100)
    return write_small_model(tmp_path / "model")


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def test_a_local_directory_is_taken_where_it_is(directory: Path) -> None:
    assert fetch_model(config_of(str(directory))) == Model(
        str(directory), ("model", str(directory)), size_of(directory)
    )


@pytest.mark.parametrize("name", ["ENDPOINT_MODEL", "HF_MODEL_ID"])
def test_a_shared_directory_is_used_in_place(name: str, tmp_path: Path) -> None:
    """Its settings are read there, too."""
    shared = write_small_model(tmp_path / "shared models")
    (shared / "endpoint.yaml").write_text("max_num_seqs: 5")
    config = load({name: shared.as_uri()})
    assert fetch_model(config).path == str(shared)
    assert config.max_num_seqs == 5


@pytest.mark.parametrize(
    ("in_config", "shown"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("gpt2", "gpt2"),
        ("/home/me/out", "model"),
        ("", "model"),
        ("./out", "model"),
        ("a/b/c", "model"),
        (7, "model"),
    ],
)
def test_the_config_or_the_folder_names_the_model(directory: Path, in_config: object, shown: str) -> None:
    write_small_model(directory, _name_or_path=in_config)
    assert fetch_model(config_of(str(directory))).names == (shown, str(directory))


def test_a_relative_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory.parent)
    for name in ("model", "./model", "model/"):
        assert fetch_model(config_of(name)).size == size_of(directory)


def test_mistrals_own_format(directory: Path) -> None:
    (directory / "config.json").rename(directory / "params.json")
    assert fetch_model(config_of(str(directory))).size == size_of(directory)


def test_a_missing_directory_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    for name in (str(tmp_path / "gone"), "./gone", "../gone/deeper"):
        assert "no directory" in refused(name).message


def test_a_file_is_no_directory(directory: Path) -> None:
    assert "no directory" in refused(str(directory / "config.json")).message


def test_a_directory_without_a_config_is_an_error_with_what_is_in_it(directory: Path) -> None:
    (directory / "config.json").unlink()
    message = refused(str(directory)).message
    assert "config.json" in message
    assert "nested" in message
    (directory / "nested" / "weights").unlink()
    (directory / "model.safetensors").unlink()
    (directory / "tokenizer.json").unlink()
    (directory / "nested").rmdir()
    assert "nothing" in refused(str(directory)).message


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.2-1B", "gpt2"])
def test_a_hub_id_is_left_to_vllm(name: str) -> None:
    assert fetch_model(config_of(name)) == Model(name, (name,), 0)


@pytest.mark.parametrize("name", ["https://huggingface.co/gpt2", "S3://bucket/model", "gs://bucket/model", "a/b/c"])
def test_nonsense_names_what_would_do(name: str) -> None:
    assert "s3://bucket/prefix" in refused(name).fix


def test_a_name_too_long_for_a_file_system() -> None:
    refused("x" * 300 + "/" + "y" * 300 + "/z")


def test_s3_is_fetched_below_the_scratch_directory_and_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, Path, str]] = []

    def download(uri: str, target: Path, setting: str, progress: ByteProgress, **_: object) -> Path:
        fetched.append((uri, target, setting))
        write_small_model(target)
        progress(2, 2)
        return target

    monkeypatch.setattr(source, "download_prefix", download)
    told: list[tuple[int, int]] = []
    one = fetch_model(config_of("s3://bucket/one", tmp_path), lambda done, total: told.append((done, total)))
    two = fetch_model(config_of("s3://bucket/two", tmp_path))
    assert one.names == ("one", "s3://bucket/one")
    assert one.size == size_of(Path(one.path))
    assert told == [(2, 2)]
    assert one.path != two.path, "two models share a directory"
    for uri, target, setting in fetched:
        assert tmp_path in target.parents
        assert setting == "HF_MODEL_ID"
        assert uri.startswith("s3://bucket/")


@pytest.mark.parametrize(
    ("beside", "left_out", "fields"),
    [
        (["pytorch_model-00001-of-00002.bin", "original/consolidated.00.pth", "onnx/model.onnx"], True, {}),
        (["consolidated.00.pth", "tf_model.h5", "flax_model.msgpack", "rust_model.ot"], True, {}),
        (["model.pt", "checkpoint/pytorch_model.bin", "compiled/model.pt", "weights/tp0.safetensors"], False, {}),
        (["2_Dense/pytorch_model.bin", "consolidated.safetensors", "params.json", "head.bin"], False, {}),
        (["pytorch_model.bin"], False, {"engine_args": {"load_format": "npcache"}}),
        (["pytorch_model.bin"], False, {"engine": "none", "trust_remote_code": True}),
    ],
)
def test_weights_in_a_second_format_stay_in_s3(
    s3: Any, tmp_path: Path, beside: list[str], left_out: bool, fields: dict[str, Any]
) -> None:
    bucket = f"second-{abs(hash((*beside, *fields)))}"
    s3.create_bucket(Bucket=bucket)
    write_small_model(tmp_path / "model")
    for path in beside:
        (tmp_path / "model" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / path).write_bytes(b"again")
    for file in (tmp_path / "model").rglob("*"):
        if file.is_file():
            s3.put_object(Bucket=bucket, Key=f"m/{file.relative_to(tmp_path / 'model')}", Body=file.read_bytes())
    config = replace(EndpointConfig(), model=f"s3://{bucket}/m", scratch=tmp_path / "scratch", **fields)
    fetched = Path(fetch_model(config).path)
    assert {path for path in beside if (fetched / path).exists()} == (set() if left_out else {*beside})
    assert {file.name for file in fetched.iterdir()} >= {"config.json", "model.safetensors"}


def test_settings_that_need_other_files_fetch_into_another_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "download_prefix", lambda uri, target, *_, **__: target)
    configs = [EndpointConfig(engine_args=arguments) for arguments in ({}, {"load_format": "npcache"}, {"seed": 1})]
    plain, other, same = (source.download("s3://b/m", config, "model") for config in configs)
    assert plain == same != other


def test_pickled_weights_without_safetensors_are_fetched() -> None:
    paths = {"config.json", "pytorch_model.bin", "original/params.json", "consolidated.safetensors"}
    assert second_formats(paths) == set()
    with_safetensors = {*paths, "model.safetensors"}
    assert second_formats(with_safetensors) == {"pytorch_model.bin", "original/params.json"}
    for own in ("code/inference.py", "model.py"):
        assert second_formats({*with_safetensors, own}) == set(), "the owner's code may read them"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab./:~ -_", max_size=12))
def test_any_name_is_a_model_or_a_setting_error(name: str) -> None:
    if name.startswith("s3://"):
        return
    try:
        model = fetch_model(config_of(name))
    except SettingError:
        return
    assert model.path == name
