"""Describes a package from its manifest and its small files. Weights are not read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handler.artifacts.store.object_names import of_manifest
from handler.config.loading.setting_files import LMI_FILE, MODEL_FILE
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import WEIGHT_SUFFIXES
from model_packaging.package.assembly import CODE, COMPILED, STORE
from model_packaging.package.package_item import Item
from model_packaging.package.package_reader import Package

SMALL = 256 * 1024
READ = ("config.json", MODEL_FILE, LMI_FILE, f"{COMPILED}/neuron_config.json")


@dataclass(frozen=True, slots=True)
class Inspection:
    """The description of a package. Sizes are in bytes; `parts` are sizes by purpose of a file."""

    uri: str
    files: int
    size: int
    parts: Mapping[str, int]
    model: Mapping[str, Json]
    settings: str
    graphs: tuple[str, ...]


def inspect(package: Package) -> Inspection:
    files = package.manifest.files
    small = {path: b"".join(item.origin.chunks()) for path, item in package.files.items() if _is_read(item)}
    parts: dict[str, int] = {}
    for file in files:
        parts[_part(file.path)] = parts.get(_part(file.path), 0) + file.size
    config = _object(small.get("config.json"))
    architectures = config.get("architectures")
    told = {
        "architecture": architectures[0] if isinstance(architectures, list) and architectures else None,
        "dtype": config.get("torch_dtype") or config.get("dtype"),
        "layers": config.get("num_hidden_layers"),
    }
    return Inspection(
        uri=package.uri,
        files=len(files),
        size=package.manifest.size,
        parts=dict(sorted(parts.items())),
        model=told,
        settings=(small.get(MODEL_FILE) or small.get(LMI_FILE) or b"").decode(errors="replace"),
        graphs=tuple(_graphs(file.path for file in files)),
    )


def _part(path: str) -> str:
    top = path.partition("/")[0]
    if top in (COMPILED, STORE):
        return "graphs"
    if top == CODE and "/" in path:
        return "code"
    if path in (MODEL_FILE, LMI_FILE):
        return "settings"
    return "weights" if path.endswith(WEIGHT_SUFFIXES) else "model's other files"


def _graphs(paths: Any) -> list[str]:
    graphs = []
    for path in paths:
        entry = of_manifest(path.removeprefix(f"{STORE}/")) if path.startswith(f"{STORE}/manifests/") else None
        if entry:
            graphs.append(f"{entry[0]} {entry[1]}")
        elif path == f"{COMPILED}/neuron_config.json":
            graphs.append("compiled directory")
    return graphs


def _is_read(item: Item) -> bool:
    return item.path in READ and item.size <= SMALL


def _object(body: bytes | None) -> dict[str, Json]:
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
