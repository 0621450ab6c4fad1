"""Checks the files of a package against its manifest."""

from __future__ import annotations

from handler.artifacts.store.artifact_store import Damage
from handler.artifacts.store.file_digests import entry_of
from model_packaging.package.digesting import Counter, DigestListener
from model_packaging.package.package_reader import Package


def verify(package: Package, listener: DigestListener) -> list[Damage]:
    """Returns the files that are missing, changed or not part of the package, sorted by path. Reads every byte."""
    wanted = {file.path: file for file in package.manifest.files}
    counter = Counter(package.manifest.size, listener)
    faults, seen = [], set()
    for path, size, chunks in package.contents():
        entry = wanted.get(path)
        if path in seen:
            faults.append(Damage(path, "is there twice"))
        elif entry is None:
            faults.append(Damage(path, "is not part of the package, but would be loaded with it"))
        elif size != entry.size:
            faults.append(Damage(path, f"has {size:,} bytes, not {entry.size:,}"))
        elif entry_of(chunks, path).digest != entry.digest:
            faults.append(Damage(path, "has other content"))
        seen.add(path)
        counter.add(entry.size if entry else 0)
    faults += [Damage(path, "is missing") for path in wanted if path not in seen]
    return sorted(faults, key=lambda fault: fault.path)
