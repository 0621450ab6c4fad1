"""Whether a package's files are what its manifest says, every byte of them."""

from __future__ import annotations

from dataclasses import dataclass

from handler.artifacts.store.file_digests import entry_of
from model_packaging.package.digesting import Counter, DigestListener, unheard
from model_packaging.package.package_reader import Package


@dataclass(frozen=True, slots=True)
class Fault:
    """One file that is not as it should be: missing, changed, of another size, or not of the package."""

    path: str
    problem: str


def verify(package: Package, listener: DigestListener = unheard) -> list[Fault]:
    """Every fault, by path. Reads all of it."""
    wanted = {file.path: file for file in package.manifest.files}
    counter = Counter(package.manifest.size, listener)
    faults, seen = [], set()
    for path, size, chunks in package.contents():
        entry = wanted.get(path)
        if path in seen:
            faults.append(Fault(path, "is there twice"))
        elif entry is None:
            faults.append(Fault(path, "is not of the package, and would be loaded with it"))
        elif size != entry.size:
            faults.append(Fault(path, f"has {size:,} bytes, not {entry.size:,}"))
        elif entry_of(chunks, path).digest != entry.digest:
            faults.append(Fault(path, "has other content"))
        seen.add(path)
        counter.add(entry.size if entry else 0)
    faults += [Fault(path, "is missing") for path in wanted if path not in seen]
    return sorted(faults, key=lambda fault: fault.path)
