"""A disk that is full, fills up or may not be written, and a scratch directory that cannot be used: each is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handler.artifacts.restore.restore import restore
from handler.artifacts.restore.restore_target import require_scratch
from handler.storage.transfer import download_directory
from handler.storage.transfer.directory_transfer import DirectorySource
from handler.storage.transfer.download_directory import NoSpace, TargetRefused
from tests.handler.artifacts.restore_entry import make_entry, small_parts
from tests.handler.artifacts.small_disk import full_disk

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def on_a_disk(tmp_path: Path, size: str, state: str) -> str:
    """What `small_disk` prints; skips where this machine lets nobody mount anything."""
    (tmp_path / "disk").mkdir()
    trial = [*UNSHARE, "mount", "-t", "tmpfs", "none", str(tmp_path / "disk")]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True, timeout=20).returncode:
        pytest.skip("no file system can be mounted here")
    program = Path(__file__).parents[1] / "small_disk.py"
    command = [*UNSHARE, sys.executable, str(program), str(tmp_path / "disk"), str(tmp_path / "store"), size, state]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert not ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("size", "state", "says"),
    [
        ("64k", "full", ["NoSpace ENDPOINT_SCRATCH: the download needs 17 MB more and"]),
        ("64k", "filling", ["filled up (No space left on device"]),
        ("64m", "read-only", ["TargetRefused ENDPOINT_SCRATCH:", "cannot be written (Read-only file system)"]),
    ],
)
def test_a_disk_that_is_full_fills_up_or_is_read_only_is_named_and_nothing_is_there(
    tmp_path: Path, size: str, state: str, says: list[str]
) -> None:
    printed = on_a_disk(tmp_path, size, state)
    assert all(part in printed for part in says)
    assert printed.endswith("nothing there\n")


def test_a_disk_with_room_will_do(tmp_path: Path) -> None:
    assert on_a_disk(tmp_path, "64m", "free") == "finished\n"


def test_a_limit_on_file_sizes_is_no_different_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be mounted, this still shows that a write that fails ends the restore."""
    small_parts(monkeypatch)
    entry = make_entry(tmp_path / "store")
    with full_disk(), pytest.raises(NoSpace, match="File too large"):
        restore([entry.manifest], DirectorySource(entry.in_directory), tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()
    restore([entry.manifest], DirectorySource(entry.in_directory), tmp_path / "artifacts")
    assert entry.is_restored(tmp_path / "artifacts")


def test_what_is_there_already_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_directory, "free", lambda directory: download_directory.RESERVE + 4096)
    download_directory.require_space(tmp_path, [1_000_000], 1_000_000, "S")
    with pytest.raises(NoSpace, match=r"S: the download needs 17 MB more and .* has 17 MB free"):
        download_directory.require_space(tmp_path, [1_000_000], 900_000, "S")


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
