"""One start's search for artifacts in a process of its own: `acquire_program.py <store> <directory> <gate>`.

Prints its events as JSON lines. Its compiler writes a few files, once the file `gate` is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import Acquisition, AcquisitionOptions, Entries
from handler.artifacts.lease.leased_compile import LeasedCompile
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from tests.handler.artifacts.artifact_files import write_artifacts

KEYS = (ArtifactKey("graph", "a" * 64, {"model": "test"}), ArtifactKey("weights", "b" * 64, {"model": "test"}))


@dataclass(frozen=True, slots=True)
class Compilation:
    """The task for a compiler. `held` tells whether this instance still holds the lease."""

    directory: Path
    missing: tuple[ArtifactKey, ...]
    held: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Acquired:
    """How a search ended: the directory for the engine, and whether the store has exactly these artifacts."""

    path: Path
    compiled: bool
    published: bool


def acquire(
    search: Acquisition,
    restore: Callable[[Entries, Path], object],
    compile: Callable[[Compilation], None],
    target: Path,
) -> Acquired:
    """Takes turns until one has come to its end, as a start does."""
    while True:
        with search.turn() as turn:
            if isinstance(turn, LeasedCompile):
                return _compiled(turn, compile, target)
            restore(turn, target)
            return Acquired(target, compiled=False, published=True)


def _compiled(turn: LeasedCompile, compile: Callable[[Compilation], None], target: Path) -> Acquired:
    directories: list[Path] = []

    def compile_there(directory: Path) -> None:
        directories.append(directory)
        compile(Compilation(directory, turn.missing, lambda: turn.lease.held))

    published = turn.run(compile_there, target)
    return Acquired(directories[-1], compiled=True, published=published)


def tell(event: object) -> None:
    print(json.dumps(event), flush=True)


def main(uri: str, directory: Path, gate: Path) -> None:
    store = ArtifactStore.open(uri)

    def compile(compilation: Compilation) -> None:
        while not gate.exists():
            time.sleep(0.02)
        write_artifacts(compilation.directory)
        (compilation.directory / "compiled-by").write_text(str(os.getpid()))

    options = AcquisitionOptions(poll=0.2, lease=2.0)
    search = Acquisition(store, KEYS, time.monotonic() + 60, options, emit=tell)
    acquired = acquire(
        search, lambda entries, target: restore(entries, source_of(store), target), compile, directory / "artifacts"
    )
    tell({"event": "done", "path": str(acquired.path), "compiled": acquired.compiled, "published": acquired.published})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
