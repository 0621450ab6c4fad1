"""Reads and verifies an existing package: a folder, or an S3 prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handler.artifacts.store.artifact_store import Damage
from handler.artifacts.store.manifest import FileEntry
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package import package_manifest as manifests
from model_packaging.package.package_item import Item
from model_packaging.package.package_manifest import NAME, InvalidPackage, PackageManifest
from model_packaging.package.package_writer import ARCHIVES
from model_packaging.package.sources import items


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
