"""model.pt: here a zip that says what it was compiled from, so that a mixed-up directory is noticed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "model.pt"
# What every TorchScript file has, and what is looked for where nothing is loaded. Nothing here can be run.
TORCHSCRIPT = {"model/constants.pkl": b"stand-in", "model/data.pkl": b"stand-in", "model/version": b"3\n"}
SHAPE_KEYS = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def model_shape(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: hf_config.get(key) for key in SHAPE_KEYS}


def body(document: Mapping[str, Any], neffs: Mapping[str, bytes], size: int) -> bytes:
    """model.pt's bytes: always the same for the same configuration."""
    neuron_config = document["neuron_config"]
    head = {"neuron_config": digest(neuron_config), "shape": model_shape(document), "tp": neuron_config["tp_degree"]}
    filler = hashlib.shake_256(digest(neuron_config).encode()).digest(size)
    files = {"compiled.json": json.dumps(head).encode(), **TORCHSCRIPT, **neffs, "filler": filler}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # ZipInfo: without the time of day
    return buffer.getvalue()


def check(directory: Path, document: Mapping[str, Any], hf_config: Mapping[str, Any]) -> None:
    """Loads model.pt.

    :raises ValueError: there is none (what torch.jit.load raises, and what leads to a recompile).
    :raises RuntimeError: it is damaged, or belongs to another configuration or model. The real one notices the latter
        late or never; a test wants to know.
    """
    path = directory / NAME
    if not path.is_file():
        raise ValueError(f"The provided filename {path} does not exist")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            head = json.loads(archive.read("compiled.json"))
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        raise RuntimeError(f"PytorchStreamReader failed reading zip archive: {path}: {error}") from error
    if damaged:
        raise RuntimeError(f"PytorchStreamReader failed reading {damaged} of {path}")
    if head["neuron_config"] != digest(document["neuron_config"]):
        raise RuntimeError(f"stand-in: {path} was compiled from another neuron_config.json")
    if head["shape"] != model_shape(hf_config):
        raise RuntimeError(f"stand-in: {path} was compiled for a model of the shape {head['shape']}")
