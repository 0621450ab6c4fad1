"""A scratch directory that cannot be used is refused by its setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.artifacts.restore.restore_target import require_scratch
from handler.storage.transfer.download_directory import TargetRefused


def test_a_directory_that_can_be_written_is_made(tmp_path: Path) -> None:
    require_scratch(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("name", ["below", "link/below"])
def test_what_is_below_the_models_directory_is_refused(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "link").symlink_to(model)
    (tmp_path / "link").symlink_to(model)
    for path in (model / name, tmp_path / "link" / name):
        with pytest.raises(TargetRefused, match="is below"):
            require_scratch(path, forbidden=model)
    assert sorted(model.iterdir()) == [model / "link"]


def test_a_file_and_a_dangling_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "link"):
        with pytest.raises(TargetRefused, match="ENDPOINT_SCRATCH"):
            require_scratch(path)


def test_a_read_only_disk_is_refused() -> None:
    with pytest.raises(TargetRefused, match="cannot be written"):
        require_scratch(Path("/proc/neuron-endpoint"))
