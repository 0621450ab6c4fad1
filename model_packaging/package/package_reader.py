"""Reads, describes and verifies an existing package: a folder, or an S3 prefix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from handler.artifacts.store.artifact_store import Damage
from handler.artifacts.store.manifest import FileEntry
from handler.artifacts.store.object_names import of_manifest
from handler.config.loading.setting_files import LMI_FILE, MODEL_FILE
from handler.config.secret_values import MASK, has_secret_name, without_credentials
from handler.json_value import Json, json_object
from handler.neuron.checkpoint.checkpoint_files import WEIGHT_SUFFIXES
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package import package_manifest as manifests
from model_packaging.package.assembly import COMPILED, STORE
from model_packaging.package.package_item import Item
from model_packaging.package.package_manifest import NAME, InvalidPackage, PackageManifest
from model_packaging.package.package_writer import ARCHIVES
from model_packaging.package.sources import CODE, items

SMALL = 256 * 1024
# A line of YAML, TOML or properties with a name and a value.
LINE = re.compile(r"(?m)^([ \t\"'-]{0,40}([\w.-]{1,100})[\"']?[ \t]{0,20}[:=][ \t]{0,20})\S.*$")
DESCRIBED = ("config.json", MODEL_FILE, LMI_FILE, f"{COMPILED}/neuron_config.json")


@dataclass(frozen=True, slots=True)
class Package:
    """An existing package.

    :param files: every file except the manifest, by its path.
    """

    uri: str
    manifest: PackageManifest
    files: Mapping[str, Item]


def open_package(place: str) -> Package:
    """Opens a package: a folder, or s3://bucket/prefix.

    :raises InvalidPackage: it has no manifest, or an invalid one.
    :raises SettingError: it does not exist.
    """
    if place.endswith(ARCHIVES):
        raise InvalidPackage(place, "it is an archive: unpack it first")
    files = {item.path: item for item in items(place, "PACKAGE")}
    manifest = files.pop(NAME, None)
    if manifest is None:
        raise InvalidPackage(place, f"it has no {NAME}")
    if manifest.size > manifests.MOST_BYTES:
        raise InvalidPackage(place, f"its manifest has {manifest.size:,} bytes")
    body = b"".join(manifest.origin.chunks())
    return Package(place, manifests.read(body, f"{place.rstrip('/')}/{NAME}"), files)


def verify(package: Package, listener: ByteProgress) -> list[Damage]:
    """Returns the files that are missing, changed or not part of the package, sorted by path. Reads every byte."""
    listed = {file.path: file for file in package.manifest.files}
    counter = ByteCounter(package.manifest.size, listener)
    faults = [Damage(path, "is missing") for path in listed.keys() - package.files.keys()]
    for path, item in package.files.items():
        entry = listed.get(path)
        if entry is None:
            faults.append(Damage(path, "is not part of the package, but would be loaded with it"))
            continue
        if item.size != entry.size:
            faults.append(Damage(path, f"has {item.size:,} bytes, not {entry.size:,}"))
        elif FileEntry.of_chunks(item.origin.chunks(), path).digest != entry.digest:
            faults.append(Damage(path, "has other content"))
        counter.add(entry.size)
    return sorted(faults, key=lambda fault: fault.path)


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
    """Describes a package from its manifest and its small files. Weights are not read."""
    files = package.manifest.files
    small = {
        path: b"".join(item.origin.chunks())
        for path, item in package.files.items()
        if path in DESCRIBED and item.size <= SMALL
    }
    parts: dict[str, int] = {}
    for file in files:
        parts[_part(file.path)] = parts.get(_part(file.path), 0) + file.size
    config = json_object(small.get("config.json", b"")) or {}
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
        settings=_shown((small.get(MODEL_FILE) or small.get(LMI_FILE) or b"").decode(errors="replace")),
        graphs=tuple(_graphs(file.path for file in files)),
    )


def _shown(settings: str) -> str:
    """The settings with every secret masked: whoever wrote the package is not always whoever reads it."""
    return LINE.sub(
        lambda match: match[1] + MASK if has_secret_name(match[2]) else match[0], without_credentials(settings)
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


def _graphs(paths: Iterable[str]) -> list[str]:
    graphs = []
    for path in paths:
        entry = of_manifest(path.removeprefix(f"{STORE}/")) if path.startswith(f"{STORE}/manifests/") else None
        if entry:
            graphs.append(f"{entry[0]} {entry[1]}")
        elif path == f"{COMPILED}/neuron_config.json":
            graphs.append("compiled directory")
    return graphs
