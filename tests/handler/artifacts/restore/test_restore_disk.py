"""A disk that is full, fills up or may not be written: named before or while, and no directory."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from restore_entry import make_entry, small_parts

from handler.artifacts.restore.restore import restore
from handler.storage.transfer import download_directory
from handler.storage.transfer.directory_transfer import DirectorySource
from handler.storage.transfer.download_directory import NoSpace

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


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    said = on_a_disk(tmp_path, "64k", "full")
    assert "NoSpace ENDPOINT_SCRATCH: the artifacts need 17 MB more and" in said
    assert said.endswith("nothing there\n")


def test_a_disk_that_fills_up_meanwhile_is_named(tmp_path: Path) -> None:
    said = on_a_disk(tmp_path, "64k", "filling")
    assert "filled up while the artifacts were written (No space left on device" in said
    assert said.endswith("nothing there\n")


def test_a_disk_that_is_read_only_is_named(tmp_path: Path) -> None:
    said = on_a_disk(tmp_path, "64m", "read-only")
    assert "TargetRefused ENDPOINT_SCRATCH:" in said
    assert "cannot be written (Read-only file system)" in said
    assert said.endswith("nothing there\n")


def test_a_disk_with_room_will_do(tmp_path: Path) -> None:
    assert on_a_disk(tmp_path, "64m", "free") == "finished\n"


def test_a_limit_on_file_sizes_is_no_different_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be mounted, this still shows that a write that fails ends the restore."""
    small_parts(monkeypatch)
    entry = make_entry(tmp_path / "store")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(NoSpace, match="File too large"):
            restore([entry.manifest], DirectorySource(entry.in_directory), tmp_path / "artifacts")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "artifacts").exists()
    restore([entry.manifest], DirectorySource(entry.in_directory), tmp_path / "artifacts")
    assert entry.is_restored(tmp_path / "artifacts")


def test_what_is_there_already_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_directory, "free", lambda directory: download_directory.RESERVE + 4096)
    download_directory.require_space(tmp_path, [1_000_000], 1_000_000, "S")
    with pytest.raises(NoSpace, match=r"S: the artifacts need 17 MB more and .* has 17 MB free"):
        download_directory.require_space(tmp_path, [1_000_000], 900_000, "S")
