"""What a restore leaves on the disk, and what it refuses, from a store in a directory."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from handler.artifacts.restore import restore_target
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.artifacts.store.manifest import FileEntry, Manifest
from handler.storage.storage_errors import DigestMismatch, InvalidManifest, NotFound, RestoreTimedOut, UnsafePath
from handler.storage.transfer import download_directory
from handler.storage.transfer.directory_transfer import DirectoryReader, DirectorySource
from handler.storage.transfer.download_directory import TargetRefused, locked
from handler.storage.transfer.transfer import Interrupted, TransferFile
from handler.storage.transfer.transfer_progress import TransferProgress
from tests.handler.artifacts.restore_entry import ELSEWHERE, SMALL_PART, Entry, make_entry, small_parts

WEIGHTS = "weights/tp0_sharded_checkpoint.safetensors"


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    small_parts(monkeypatch)
    return make_entry(tmp_path / "store")


@pytest.fixture
def source(entry: Entry) -> DirectorySource:
    return DirectorySource(entry.in_directory)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "scratch" / "artifacts"


def test_the_directory_holds_the_entry_and_nothing_else(entry: Entry, source: DirectorySource, target: Path) -> None:
    seen: list[TransferProgress] = []
    done = restore([entry.manifest], source, target, progress=seen.append)
    assert entry.is_restored(target)
    assert (done.path, done.size, done.fetched, done.kept) == (target, entry.size, entry.size, 0)
    assert (seen[-1].done, seen[-1].total) == (entry.size, entry.size)
    assert {path.name for path in target.parent.iterdir()} == {"artifacts", "artifacts.lock", "artifacts.restored"}


def test_a_graph_and_its_weights_make_one_directory(entry: Entry, source: DirectorySource, target: Path) -> None:
    graph = replace(entry.manifest, files=entry.manifest.files[:2])
    weights = replace(entry.manifest, kind="weights", files=entry.manifest.files[2:])
    restore([graph, weights], source, target)
    assert entry.is_restored(target)


def test_files_are_asked_for_in_the_order_of_the_manifest(entry: Entry, target: Path) -> None:
    asked: list[str] = []

    class Recorded(DirectoryReader):
        def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
            asked.append(f"{file.path} {offset}")
            super().open(file, offset, length, timeout)

    source = DirectorySource(entry.in_directory)
    source.reader = lambda: Recorded(source)  # type: ignore[method-assign]
    restore([entry.manifest], source, target, options=RestoreOptions(threads=1))
    expected = [f"{file.path} {offset}" for file in entry.manifest.files for offset in range(0, file.size, SMALL_PART)]
    assert asked == expected


class TestModelPaths:
    """`_name_or_path` is the compiling machine's; the digest is of that, the directory has this machine's."""

    def test_it_is_rewritten_and_the_rest_is_untouched(
        self, entry: Entry, source: DirectorySource, target: Path
    ) -> None:
        restore([entry.manifest], source, target, paths=ModelPaths(model="/models/here"))
        written = json.loads((target / "neuron_config.json").read_bytes())
        assert written == {"_name_or_path": "/models/here", "neuron_config": {"tp_degree": 2}}
        expected = entry.contents | {"neuron_config.json": (target / "neuron_config.json").read_bytes()}
        assert replace(entry, contents=expected).is_restored(target)

    def test_a_directory_that_is_there_gets_another_path(
        self, entry: Entry, source: DirectorySource, target: Path
    ) -> None:
        for model in ("/models/a", "/models/b"):
            restore([entry.manifest], source, target, paths=ModelPaths(model=model))
            assert json.loads((target / "neuron_config.json").read_bytes())["_name_or_path"] == model

    def test_draft_and_quantized_weights_have_paths_of_their_own(self, tmp_path: Path) -> None:
        saved = {
            "_name_or_path": ELSEWHERE,
            "text_config": {"_name_or_path": ELSEWHERE, "neuron_config": {"quantized_checkpoints_path": "/old"}},
            "vision_config": None,
            "neuron_config": {"quantized_checkpoints_path": f"{ELSEWHERE}/int8"},
            "fused_spec_config": {"draft_model_path": "/draft", "draft_config": {"_name_or_path": "/draft"}},
        }
        (tmp_path / "neuron_config.json").write_text(json.dumps(saved))
        paths = ModelPaths(model="/m", draft="/d", quantized_checkpoints="/q")
        paths.rewrite(tmp_path, ["neuron_config.json"], tmp_path / "new")
        assert json.loads((tmp_path / "neuron_config.json").read_bytes()) == {
            "_name_or_path": "/m",
            "text_config": {"_name_or_path": "/m", "neuron_config": {"quantized_checkpoints_path": "/q"}},
            "vision_config": None,
            "neuron_config": {"quantized_checkpoints_path": "/q"},
            "fused_spec_config": {"draft_model_path": "/d", "draft_config": {"_name_or_path": "/d"}},
        }

    def test_what_nxdi_cannot_read_again_is_left_out(self, tmp_path: Path) -> None:
        """The classes of NxDI 0.10 refuse what they saved themselves: enumerations, and adapters named twice."""
        method = {"_name_": "PER_TENSOR_SYMMETRIC", "_value_": "per_tensor_symmetric"}
        cache = {"direct_cast": True, "k_quant_method": method, "quant_dtype": "float8_e4m3fn"}
        lora = {"lora_ckpt_json": "/old.json", "lora_ckpt_paths": {"a": "/a"}, "lora_ckpt_paths_cpu": {"a": "/a"}}
        saved = {"neuron_config": {"kv_quant_config": cache, "lora_config": lora}}
        (tmp_path / "neuron_config.json").write_text(json.dumps(saved))
        ModelPaths(adapter_file="/new.json").rewrite(tmp_path, ["neuron_config.json"], tmp_path / "new")
        assert json.loads((tmp_path / "neuron_config.json").read_bytes())["neuron_config"] == {
            "kv_quant_config": {"direct_cast": True},
            "lora_config": {"lora_ckpt_json": "/new.json", "lora_ckpt_paths": None, "lora_ckpt_paths_cpu": None},
        }


class TestResumption:
    """What an earlier restore left is used where it is right, and never trusted."""

    def test_parts_that_are_right_are_kept(self, entry: Entry, source: DirectorySource, target: Path) -> None:
        missing = entry.object(WEIGHTS)
        aside = missing.rename(missing.with_suffix(".aside"))
        with pytest.raises(NotFound):
            restore([entry.manifest], source, target, options=RestoreOptions(threads=1))
        assert not target.exists()
        aside.rename(missing)
        done = restore([entry.manifest], source, target)
        assert done.kept == len(entry.contents["neuron_config.json"]) + len(entry.contents["model.pt"])
        assert done.fetched == entry.size - done.kept
        assert entry.is_restored(target)

    @pytest.mark.parametrize(
        "damage", ["flip", "longer", "shorter", "link", "directory", "stranger", "linked directory"]
    )
    def test_what_is_wrong_is_replaced(
        self, entry: Entry, source: DirectorySource, target: Path, tmp_path: Path, damage: str
    ) -> None:
        restore([entry.manifest], source, target)
        partial = _partial(entry, source, target)
        target.rename(partial)
        file = partial / WEIGHTS
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("untouched")
        if damage == "flip":
            file.write_bytes(bytes(byte ^ (number == SMALL_PART) for number, byte in enumerate(file.read_bytes())))
        elif damage == "longer":
            file.write_bytes(file.read_bytes() + b"more")
        elif damage == "shorter":
            os.truncate(file, SMALL_PART + 1)
        elif damage == "link":
            file.unlink()
            file.symlink_to(outside / "precious")
        elif damage == "directory":
            file.unlink()
            (file / "below").mkdir(parents=True)
        elif damage == "stranger":
            (partial / "weights" / "stranger.bin").write_text("?")
            (partial / "old").mkdir()
        else:
            for child in (partial / "text_model").rglob("*"):
                if child.is_file():
                    child.unlink()
            (partial / "text_model" / "weights").rmdir()
            (partial / "text_model").rmdir()
            (partial / "text_model").symlink_to(outside)
        restore([entry.manifest], source, target)
        assert entry.is_restored(target)
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"precious": "untouched"}
        assert not (target / "old").exists()

    def test_a_directory_of_an_earlier_boot_is_digested_again(
        self, entry: Entry, source: DirectorySource, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        restore([entry.manifest], source, target)
        (target / WEIGHTS).write_bytes(bytes(entry.file(WEIGHTS).size))
        assert restore([entry.manifest], source, target).fetched == 0  # of this boot: sizes are all that is looked at
        (tmp_path / "boot_id").write_text("another boot")
        monkeypatch.setattr(download_directory, "BOOT_ID", tmp_path / "boot_id")
        assert restore([entry.manifest], source, target).fetched == entry.file(WEIGHTS).size
        assert entry.is_restored(target)

    def test_another_entry_takes_the_place(
        self, entry: Entry, source: DirectorySource, target: Path, tmp_path: Path
    ) -> None:
        other = make_entry(tmp_path / "store", seed=1)
        for chosen in (entry, other, entry):
            restore([chosen.manifest], source, target)
            assert chosen.is_restored(target)
        assert not list(target.parent.glob("*partial*"))


class TestRefusal:
    """Nothing is written where it must not be; the setting is named."""

    @pytest.mark.parametrize("path", ["/opt/ml/model/x", "/opt/ml/model", "{link}/x"])
    def test_the_read_only_model_directory(
        self, entry: Entry, source: DirectorySource, tmp_path: Path, path: str
    ) -> None:
        (tmp_path / "link").symlink_to("/opt/ml/model")
        with pytest.raises(TargetRefused, match=r"ENDPOINT_SCRATCH: .* is below /opt/ml/model"):
            restore([entry.manifest], source, Path(path.format(link=tmp_path / "link")))
        assert not Path("/opt/ml/model").exists()

    @pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a\0b", "neuron_config.json/x"])
    def test_a_path_that_leaves_the_directory(
        self, entry: Entry, source: DirectorySource, target: Path, path: str
    ) -> None:
        bad = replace(
            entry.manifest, files=(*entry.manifest.files, msgspec.structs.replace(entry.manifest.files[0], path=path))
        )
        with pytest.raises(UnsafePath):
            restore([bad], source, target)
        assert not target.parent.exists()

    def test_a_large_file_without_digests_of_its_parts(self, source: DirectorySource, target: Path) -> None:
        manifest = Manifest("0" * 64, "graph", {}, (FileEntry("model.pt", 10 * SMALL_PART, "0" * 64),), 0.0)
        with pytest.raises(InvalidManifest, match=r"model\.pt"):
            restore([manifest], source, target)

    def test_a_directory_that_no_restore_has_made(self, entry: Entry, source: DirectorySource, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "thesis.tex").write_text("mine")
        with pytest.raises(TargetRefused, match="was not made by a restore"):
            restore([entry.manifest], source, target)
        assert (target / "thesis.tex").read_text() == "mine"

    def test_a_parent_that_is_a_file(self, entry: Entry, source: DirectorySource, target: Path) -> None:
        target.parent.write_text("")
        with pytest.raises(TargetRefused, match="cannot be written"):
            restore([entry.manifest], source, target)

    def test_damage_in_the_store(self, entry: Entry, source: DirectorySource, target: Path) -> None:
        entry.object(WEIGHTS).write_bytes(bytes(entry.file(WEIGHTS).size))
        with pytest.raises(DigestMismatch, match=WEIGHTS):
            restore([entry.manifest], source, target)
        assert not target.exists()


class Stubborn(DirectoryReader):
    """Stands still until it is broken off."""

    def open(self, file: TransferFile, offset: int, length: int, timeout: float) -> None:
        self.gone = threading.Event()

    def readinto(self, buffer: memoryview) -> int:
        assert self.gone.wait(60)
        raise Interrupted("broken off")

    def abort(self) -> None:
        self.gone.set()


class Measured(DirectoryReader):
    """Notes the most that a read was asked for. A read of a connection returns when it has all of it."""

    most = 0

    def readinto(self, buffer: memoryview) -> int:
        Measured.most = max(Measured.most, len(buffer))
        return super().readinto(buffer)


def test_a_slow_connection_shows_that_it_moves_long_before_it_counts_as_stalled(entry: Entry, target: Path) -> None:
    source = DirectorySource(entry.in_directory)
    source.reader = lambda: Measured(source)  # type: ignore[method-assign]
    restore([entry.manifest], source, target)
    assert 0 < Measured.most <= 64 * 1024


def test_the_deadline_ends_a_restore_that_stands_still(entry: Entry, target: Path) -> None:
    source = DirectorySource(entry.in_directory)
    source.reader = lambda: Stubborn(source)  # type: ignore[method-assign]
    before = set(threading.enumerate())
    with pytest.raises(RestoreTimedOut, match="did not finish in time: 0 of 0 MB, fetching"):
        restore([entry.manifest], source, target, deadline=time.monotonic() + 0.05)
    assert set(threading.enumerate()) <= before
    assert not target.exists()


def test_the_deadline_ends_the_wait_for_another_process(entry: Entry, source: DirectorySource, target: Path) -> None:
    seen: list[TransferProgress] = []
    target.parent.mkdir()
    with locked(target.with_name("artifacts.lock"), lambda: None), pytest.raises(RestoreTimedOut, match="waiting for"):
        restore([entry.manifest], source, target, deadline=time.monotonic() + 0.05, progress=seen.append)
    assert seen
    assert all(progress.waiting for progress in seen)


def _partial(entry: Entry, source: DirectorySource, target: Path) -> Path:
    """The name that a restore of this entry writes under."""
    from handler.artifacts.restore.restore_target import RestoreContents

    return restore_target.RestoreTarget(target, RestoreContents.of([entry.manifest])).partial
