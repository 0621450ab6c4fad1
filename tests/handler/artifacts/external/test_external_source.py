from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.external.external_artifacts import describe
from handler.artifacts.external.external_source import fetch_external_artifacts
from handler.errors import SettingError
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.storage_errors import UnsafeArchive
from handler.storage.transfer.download_directory import NoSpace
from tests.handler.artifacts.small_disk import full_disk


@pytest.fixture
def packed(directory: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        made.add(directory, arcname=".")
    return file.getvalue()


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_is_taken_as_it_is(directory: Path, tmp_path: Path) -> None:
    assert fetch_external_artifacts(str(directory), tmp_path / "target") == directory
    assert not (tmp_path / "target").exists()


def test_an_archive_on_the_disk(directory: Path, packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(packed)
    target = fetch_external_artifacts(str(tmp_path / "model.tar.gz"), tmp_path / "scratch" / "target")
    assert files(target) == files(directory)
    assert describe(DirectoryObjects(target)).loadable


def test_a_disk_that_fills_up_is_named_with_its_setting(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(packed)
    with full_disk(10), pytest.raises(NoSpace, match=r"ENDPOINT_SCRATCH: .*filled up \(File too large"):
        fetch_external_artifacts(str(tmp_path / "model.tar.gz"), tmp_path / "target")


def test_an_archive_in_s3(directory: Path, packed: bytes, tmp_path: Path, bucket: str, s3: Any) -> None:
    s3.put_object(Bucket=bucket, Key="model.tar.gz", Body=packed)
    s3.put_object(Bucket=bucket, Key="deep/er/model.tar.gz", Body=packed[:-20])
    target = fetch_external_artifacts(f"s3://{bucket}/model.tar.gz", tmp_path / "target")
    assert files(target) == files(directory)
    with pytest.raises(UnsafeArchive, match=r"deep/er/model\.tar\.gz"):
        fetch_external_artifacts(f"s3://{bucket}/deep/er/model.tar.gz", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_prefix_in_s3(directory: Path, tmp_path: Path, bucket: str, s3: Any) -> None:
    for name, body in files(directory).items():
        s3.put_object(Bucket=bucket, Key=f"compiled/v1/{name}", Body=body)
    assert files(fetch_external_artifacts(f"s3://{bucket}/compiled/v1/", tmp_path / "target")) == files(directory)


def test_nothing_there(tmp_path: Path, bucket: str) -> None:
    for source in (str(tmp_path / "none"), f"s3://{bucket}/none.tar.gz", f"s3://{bucket}/none/"):
        with pytest.raises(SettingError, match="NEURON_COMPILED_ARTIFACTS"):
            fetch_external_artifacts(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
