"""Files that look like those of a compile, small."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.object_names import OBJECTS
from handler.artifacts.store.publication import CompileInputs
from handler.json_value import Json

KEY = "a" * 64
NEURON_CONFIG: dict[str, Json] = {
    "tp_degree": 2,
    "local_ranks_size": 2,
    "start_rank_id": 0,
    "batch_size": 4,
    "seq_len": 4096,
    "max_context_length": 4096,
    "torch_dtype": "bfloat16",
    "logical_nc_config": 1,
    "on_device_sampling_config": {"dynamic": True, "global_topk": 256, "do_sample": False},
    "is_prefix_caching": False,
    "is_block_kv_layout": False,
    "enable_bucketing": True,
    "save_sharded_checkpoint": True,
    "skip_sharding": False,
}
SAVED: dict[str, Json] = {"_name_or_path": "/models/llama", "hidden_size": 64, "neuron_config": dict(NEURON_CONFIG)}


def safetensors(tensors: dict[str, list[int]], dtype: str = "F32", fill: bytes = b"\0") -> bytes:
    header, at, body = {}, 0, b""
    for name, shape in tensors.items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        body += fill * size
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def torchscript(size: int = 2000) -> bytes:
    """A zip as `torch.jit.save` lays it out."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/version", "3\n")
        archive.writestr("model/constants.pkl", b"\x80\x02).")
        archive.writestr("model/code/neff", bytes(range(256)) * (size // 256))
    return file.getvalue()


def write_artifacts(directory: Path, *, ranks: int = 2, fill: bytes = b"\0") -> Path:
    """A directory as NxDI leaves it."""
    (directory / "weights").mkdir(parents=True)
    (directory / "neuron_config.json").write_text(json.dumps(SAVED))
    (directory / "model.pt").write_bytes(torchscript())
    for rank in range(ranks):
        shard = safetensors({"w": [4, 4 + rank]}, fill=fill)
        (directory / f"weights/tp{rank}_sharded_checkpoint.safetensors").write_bytes(shard)
    return directory


def object_names(store: ArtifactStore) -> set[str]:
    return {info.key for info in store.objects.list(OBJECTS)}


def ingredients(key: str = KEY, kind: str = "graph", **fields: Json) -> CompileInputs:
    return CompileInputs(key, kind, fields, compile_seconds=12.5, machine={"instance": "trn1.2xlarge"})
