from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.identity.checkpoint_identity import CheckpointIdentity, identify
from handler.errors import SettingError
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.s3_objects import S3Objects
from tests.handler.artifacts.artifact_files import safetensors

TENSORS = {"embed": [8, 4], "layer.0": [4, 4], "layer.1": [4, 4]}


def write(directory: Path, files: dict[str, bytes]) -> CheckpointIdentity:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for name, body in files.items():
        (directory / name).write_bytes(body)
    return identify(DirectoryObjects(directory))


def test_a_fine_tune_has_the_same_shape_and_another_content(tmp_path: Path) -> None:
    base = write(tmp_path / "a", {"model.safetensors": safetensors(TENSORS)})
    tuned = write(tmp_path / "b", {"model.safetensors": safetensors(TENSORS, fill=b"\1")})
    assert base.config == {"model_type": "llama"}
    assert tuned.shape == base.shape
    assert tuned.content != base.content


def test_the_same_checkpoint_elsewhere_is_the_same(tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(TENSORS), "README.md": b"one"}
    assert write(tmp_path / "a", files) == write(tmp_path / "b", {**files, "README.md": b"two"})
    of_macos = {"._model.safetensors": b"\x00\x05\x16\x07" + bytes(100)}
    assert write(tmp_path / "c", {**files, **of_macos}) == write(tmp_path / "d", files)


def test_how_tensors_are_split_over_files_does_not_change_the_shape(tmp_path: Path) -> None:
    whole = write(tmp_path / "a", {"model.safetensors": safetensors(TENSORS)})
    first, second = {"embed": [8, 4]}, {"layer.1": [4, 4], "layer.0": [4, 4]}
    split = write(
        tmp_path / "b",
        {"model-1.safetensors": safetensors(first), "model-2.safetensors": safetensors(second)},
    )
    assert split.shape == whole.shape


@pytest.mark.parametrize(
    "other",
    [
        safetensors({**TENSORS, "embed": [16, 4]}),
        safetensors({**TENSORS, "more": [1]}),
        safetensors({"embed": [4, 8], "layer.0": [4, 4], "layer.1": [4, 4]}),
        safetensors(TENSORS, dtype="I32"),
    ],
)
def test_names_types_and_shapes_are_the_shape(tmp_path: Path, other: bytes) -> None:
    base = write(tmp_path / "a", {"model.safetensors": safetensors(TENSORS)})
    assert write(tmp_path / "b", {"model.safetensors": other}).shape != base.shape


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    found = write(tmp_path / "a", {"pytorch_model.bin": b"cos\nsystem\n"})
    assert list(found.content) == ["pytorch_model.bin"]
    assert write(tmp_path / "b", {"pytorch_model.bin": b"cos\nsystem\n2"}).shape != found.shape


def test_in_s3_the_etag_stands_for_the_content(bucket: str, s3: Any) -> None:
    s3.put_object(Bucket=bucket, Key="m/config.json", Body=b"{}")
    s3.put_object(Bucket=bucket, Key="m/model.safetensors", Body=safetensors(TENSORS))
    s3.put_object(Bucket=bucket, Key="m/nested/other.safetensors", Body=b"not of the checkpoint")
    first = identify(S3Objects(bucket, "m"))
    assert list(first.content) == ["model.safetensors"]
    assert first.content["model.safetensors"].startswith("etag:")
    s3.put_object(Bucket=bucket, Key="m/model.safetensors", Body=safetensors(TENSORS, fill=b"\1"))
    second = identify(S3Objects(bucket, "m"))
    assert (second.shape == first.shape, second.content == first.content) == (True, False)


@pytest.mark.parametrize("body", [b"", b"short", safetensors(TENSORS)[:-1], safetensors(TENSORS) + b"x", b"\xff" * 99])
def test_a_file_that_was_cut_off_is_named(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(SettingError, match=r"model\.safetensors"):
        write(tmp_path / "a", {"model.safetensors": body})


@pytest.mark.parametrize("config", ["[]", "{", "\xff", "[" * 100_000])
def test_a_configuration_that_is_none(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(SettingError, match=r"config\.json"):
        identify(DirectoryObjects(tmp_path))


def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has none of"):
        identify(DirectoryObjects(tmp_path))
