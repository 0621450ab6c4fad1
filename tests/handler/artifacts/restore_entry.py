"""A small entry as a restore meets it: its manifest, its objects, and what the directory must be afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from handler.artifacts.store import manifest as manifests
from handler.artifacts.store.manifest import FileEntry, Manifest
from handler.artifacts.store.object_names import object_name
from handler.storage.object_store import Location

# Parts of 16 MiB would make every test a matter of seconds: the tests of restore have parts of this size, everywhere.
SMALL_PART = 8 * 1024
ELSEWHERE = "/the/machine/that/compiled"
CONFIG = (json.dumps({"_name_or_path": ELSEWHERE, "neuron_config": {"tp_degree": 2}}, indent=2) + "\n").encode()


def small_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifests, "PART_SIZE", SMALL_PART)


@dataclass(frozen=True)
class Entry:
    """The entry's files with their bytes, in order; `objects` has them under the names that a store gives them."""

    contents: dict[str, bytes]
    objects: Path

    @property
    def manifest(self) -> Manifest:
        files = tuple(FileEntry.of_chunks([content], path) for path, content in self.contents.items())
        return Manifest("0" * 64, "graph", {}, files, 0.0)

    @property
    def size(self) -> int:
        return sum(len(content) for content in self.contents.values())

    def file(self, path: str) -> FileEntry:
        return next(file for file in self.manifest.files if file.path == path)

    def object(self, path: str) -> Path:
        return self.objects / object_name(self.file(path).digest)

    def in_directory(self, digest: str) -> Location:
        path = self.objects / object_name(digest)
        return Location(path.as_uri(), path=path)

    def is_restored(self, target: Path) -> bool:
        """To the byte: the entry's files and no others."""
        return found(target) == self.contents


def make_entry(objects: Path, seed: int = 0) -> Entry:
    """Seven files like a compiled model's, one of them empty, the largest of five parts; needs `small_parts`."""
    random = Random(seed)
    sizes = {
        "model.pt": 3 * SMALL_PART + 17,
        "weights/tp0_sharded_checkpoint.safetensors": 5 * SMALL_PART - 1,
        "weights/tp1_sharded_checkpoint.safetensors": 2 * SMALL_PART,
        "text_model/model.pt": 1000,
        "text_model/weights/tp0.safetensors": SMALL_PART,
        "empty": 0,
    }
    entry = Entry({"neuron_config.json": CONFIG} | {path: random.randbytes(n) for path, n in sizes.items()}, objects)
    for file in entry.manifest.files:
        path = objects / object_name(file.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.contents[file.path])
    return entry


def in_bucket(digest: str) -> Location:
    key = object_name(digest)
    return Location(f"s3://bucket/{key}", bucket="bucket", key=key)


def found(directory: Path) -> dict[str, bytes]:
    """Every file below a directory; a link among them is an error."""
    files = {}
    for path in directory.rglob("*"):
        assert not path.is_symlink(), path
        if path.is_file():
            files[path.relative_to(directory).as_posix()] = path.read_bytes()
    return files
