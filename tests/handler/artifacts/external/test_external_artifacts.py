"""Artifacts of others: what is whole, what is missing, what was cut off, and what nobody can know."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.artifacts.external.external_artifacts import NOT_VOUCHED, check_torchscript, describe
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.s3_objects import S3Objects
from handler.storage.safetensors_header import BrokenFile
from tests.handler.artifacts.artifact_files import NEURON_CONFIG, SAVED, safetensors, torchscript, write_artifacts


def codes(directory: Path) -> list[str]:
    return [finding.code for finding in describe(DirectoryObjects(directory)).findings]


def test_a_whole_one_is_described(directory: Path) -> None:
    found = describe(DirectoryObjects(directory))
    assert found.loadable
    assert found.findings == ()
    assert found.config == SAVED
    said = " ".join(NOT_VOUCHED)
    for word in ("versions", "platform", "digest", "signed", "checkpoint"):
        assert word in said


def test_in_s3_it_is_described_without_being_downloaded(directory: Path, bucket: str, s3: Any) -> None:
    large = torchscript(5_000_000)
    (directory / "model.pt").write_bytes(large)
    for path in directory.rglob("*"):
        if path.is_file():
            s3.put_object(Bucket=bucket, Key=f"p/{path.relative_to(directory)}", Body=path.read_bytes())
    objects = S3Objects(bucket, "p")
    read, taken = objects.read, []

    def counted(key: str, start: int = 0, length: int | None = None) -> Any:
        for chunk in read(key, start, length):
            taken.append(len(chunk))
            yield chunk

    objects.read = counted  # type: ignore[method-assign]
    found = describe(objects)
    assert found.findings == ()
    assert 0 < sum(taken) < 200_000


def test_a_configuration_without_a_graph_is_an_interrupted_compile(directory: Path) -> None:
    (directory / "model.pt").unlink()
    found = describe(DirectoryObjects(directory))
    assert not found.loadable
    assert [finding.code for finding in found.findings] == ["artifacts-interrupted-compile"]
    assert "the compile was interrupted" in found.findings[0].why


@pytest.mark.parametrize("keep", [0, 1, 100, 1000, -1, -10, -100])
def test_a_truncated_graph_is_found_without_loading_it(directory: Path, keep: int) -> None:
    path = directory / "model.pt"
    path.write_bytes(path.read_bytes()[:keep])
    assert codes(directory) == ["artifacts-broken-graph"]


def test_a_zip_that_is_no_torchscript(directory: Path) -> None:
    with zipfile.ZipFile(directory / "model.pt", "w") as archive:
        archive.writestr("readme", "x")
    assert codes(directory) == ["artifacts-broken-graph"]


def test_a_rank_without_a_shard(directory: Path) -> None:
    (directory / "weights/tp1_sharded_checkpoint.safetensors").unlink()
    found = describe(DirectoryObjects(directory))
    assert [finding.code for finding in found.findings] == ["artifacts-shards-missing"]
    assert "1 of 2 ranks" in found.findings[0].why
    assert "tp1_" in found.findings[0].why
    assert not found.loadable


@pytest.mark.parametrize("body", [b"", safetensors({"w": [4]})[:-1], safetensors({"w": [4]}) + b"x"])
def test_a_shard_whose_size_is_not_its_headers(directory: Path, body: bytes) -> None:
    (directory / "weights/tp1_sharded_checkpoint.safetensors").write_bytes(body)
    assert codes(directory) == ["artifacts-broken-shard"]


def test_shards_that_were_not_saved_are_only_a_warning(directory: Path) -> None:
    config = {**SAVED, "neuron_config": {**NEURON_CONFIG, "save_sharded_checkpoint": False}}
    (directory / "neuron_config.json").write_text(json.dumps(config))
    found = describe(DirectoryObjects(directory))
    assert [finding.code for finding in found.findings] == ["artifacts-sharded-on-load"]
    assert found.loadable


def test_ranks_begin_where_the_configuration_says(directory: Path) -> None:
    config = {**SAVED, "neuron_config": {**NEURON_CONFIG, "start_rank_id": 2, "local_ranks_size": 1}}
    (directory / "neuron_config.json").write_text(json.dumps(config))
    (finding,) = describe(DirectoryObjects(directory)).findings
    assert "0 of 1 ranks; the first missing file is weights/tp2_" in finding.why
    shards = directory / "weights"
    (shards / "tp1_sharded_checkpoint.safetensors").rename(shards / "tp2_sharded_checkpoint.safetensors")
    assert describe(DirectoryObjects(directory)).findings == ()


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_broken_configuration(directory: Path, text: str) -> None:
    (directory / "neuron_config.json").write_text(text)
    assert "artifacts-broken-config" in codes(directory)


def test_nothing_of_the_kind(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = describe(DirectoryObjects(tmp_path))
    assert not found.loadable


def test_a_multimodal_one_has_two_parts(tmp_path: Path) -> None:
    part = {"neuron_config": NEURON_CONFIG}
    config = {"text_config": part, "vision_config": {"neuron_config": {**NEURON_CONFIG, "local_ranks_size": 1}}}
    for name in ("text_model", "vision_model"):
        write_artifacts(tmp_path / name, ranks=2 if name == "text_model" else 1)
        (tmp_path / name / "neuron_config.json").unlink()
    (tmp_path / "neuron_config.json").write_text(json.dumps(config))
    found = describe(DirectoryObjects(tmp_path))
    assert found.findings == ()
    (tmp_path / "vision_model/model.pt").unlink()
    (tmp_path / "text_model/weights/tp1_sharded_checkpoint.safetensors").unlink()
    (tmp_path / "vision_model/weights/tp0_sharded_checkpoint.safetensors").unlink()
    text, graph, vision = (finding.why for finding in describe(DirectoryObjects(tmp_path)).findings)
    assert "text_model/weights/ has files for 1 of 2 ranks" in text
    assert "vision_model/model.pt" in graph
    assert "vision_model/weights/ has files for 0 of 1 ranks" in vision


@given(st.data())
def test_no_damage_to_a_zip_breaks_the_check(data: st.DataObject) -> None:
    body = bytearray(torchscript(512))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(max(0, len(body) - 400), len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))])
    with suppress(BrokenFile):
        check_torchscript(lambda start, length: damaged[start : start + length], len(damaged))


def test_a_directory_that_claims_gigabytes_is_not_read() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/constants.pkl", "x")
    body = bytearray(file.getvalue())
    body[-10:-6] = (2**31 - 1).to_bytes(4, "little")  # the central directory's size
    asked: list[int] = []

    def read(start: int, length: int) -> bytes:
        asked.append(length)
        return bytes(length) if start + length < len(body) - 70000 else bytes(body[start - 2**31 :][:length])

    with pytest.raises(BrokenFile):
        check_torchscript(read, 2**31 + len(body))
    assert max(asked) < 100_000
