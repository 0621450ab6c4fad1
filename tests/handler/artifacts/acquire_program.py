"""One start's search for artifacts in a process of its own: `acquire_program.py <store> <directory> <gate>`.

Prints its events as JSON lines. Its compiler writes a few files, once the file `gate` is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import Acquisition
from handler.artifacts.lease.acquisition_options import AcquisitionOptions, Compilation
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from tests.handler.artifacts.artifact_files import write_artifacts

KEYS = (ArtifactKey("graph", "a" * 64, {"model": "test"}), ArtifactKey("weights", "b" * 64, {"model": "test"}))


def tell(event: object) -> None:
    print(json.dumps(event), flush=True)


def main(uri: str, directory: Path, gate: Path) -> None:
    store = ArtifactStore.open(uri)

    def compile(wanted: Compilation) -> None:
        while not gate.exists():
            time.sleep(0.02)
        write_artifacts(wanted.directory)
        (wanted.directory / "compiled-by").write_text(str(os.getpid()))

    acquired = Acquisition(
        store,
        KEYS,
        directory / "artifacts",
        lambda manifests, target: restore(manifests, source_of(store), target),
        compile,
        time.monotonic() + 60,
        options=AcquisitionOptions(poll=0.2, lease=2.0),
        listener=tell,
    ).run()
    tell({"event": "done", "path": str(acquired.path), "compiled": acquired.compiled, "published": acquired.published})


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
