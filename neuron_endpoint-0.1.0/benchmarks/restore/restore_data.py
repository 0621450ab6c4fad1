"""Creates the data of the restore benchmark: an entry of a store, and the same files as plain objects."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs

BUCKET, ENTRY, STORE = "bench", "entry", "store"
KEY = "0" * 64
KINDS = ("graph", "weights")
MB = 1024 * 1024
LARGE, LARGE_SIZE = 4, 512 * MB
SMALL = 196
CHUNK = 16 * MB


def write_entry(root: Path, scale: float) -> int:
    """Creates the bucket's directory below `root`. Returns the size of the entry in bytes.

    The plain objects are hard links to the store's. So both sides read the same pages of the same files.

    :param scale: the factor for every size; 1 is 2.2 GB in 200 files.
    """
    bucket, made = root / BUCKET, root / "made"
    random = Random(0)
    sizes = {f"weights/tp{rank}_sharded_checkpoint.safetensors": int(LARGE_SIZE * scale) for rank in range(LARGE)}
    sizes |= {f"graphs/{number:03d}.neff": int((256 * 1024 + number * 4096) * scale) for number in range(SMALL)}
    for name, size in sizes.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            for start in range(0, size, CHUNK):
                file.write(random.randbytes(min(CHUNK, size - start)))
    store = ArtifactStore.open((bucket / STORE).absolute().as_uri())
    for kind in KINDS:
        manifest = store.publish(made, CompileInputs(KEY, kind, {}))
        for entry in manifest.files:
            plain, kept = bucket / ENTRY / entry.path, store.object_location(entry.digest).path
            assert kept is not None
            plain.parent.mkdir(parents=True, exist_ok=True)
            os.link(kept, plain)
            (made / entry.path).unlink()
    return sum(sizes.values())
