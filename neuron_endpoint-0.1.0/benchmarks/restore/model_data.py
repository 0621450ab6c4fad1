"""Creates the model of the fetch benchmark: shards of safetensors with random tensors, and small files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from benchmarks.restore.restore_data import BUCKET, MB

MODEL = "model"
TENSORS, TENSOR_SIZE = 16, 32 * MB
SMALL_FILES = {"config.json": 1024, "tokenizer.json": 9 * MB, "tokenizer_config.json": 4096}
# More shards are hard links to these, so that a server's pages are those of 2 GB.
DISTINCT = 4


def write_model(root: Path, shards: int) -> int:
    """Creates the files of the model in the bucket's directory below `root`, in addition to those that are there.

    :returns: the size of the model in bytes.
    """
    directory = root / BUCKET / MODEL
    directory.mkdir(parents=True, exist_ok=True)
    random = Random(0)
    for name, size in SMALL_FILES.items():
        (directory / name).write_bytes(random.randbytes(size))
    for number in range(shards):
        path = directory / f"model-{number:05d}.safetensors"
        if not path.exists():
            if number < DISTINCT:
                _write_shard(path, random)
            else:
                os.link(directory / f"model-{number % DISTINCT:05d}.safetensors", path)
    return sum(path.stat().st_size for path in directory.iterdir())


def _write_shard(path: Path, random: Random) -> None:
    header = {
        f"{path.stem}.{number}": {
            "dtype": "U8",
            "shape": [TENSOR_SIZE],
            "data_offsets": [number * TENSOR_SIZE, (number + 1) * TENSOR_SIZE],
        }
        for number in range(TENSORS)
    }
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for _ in range(TENSORS):
            file.write(random.randbytes(TENSOR_SIZE))
