"""Writes a package to a folder, which appears complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from handler.errors import SettingError
from model_packaging.package.digesting import Counter, DigestListener
from model_packaging.package.package_item import Item, LocalFile
from model_packaging.package.package_manifest import NAME, PackageManifest, written


def write(items: Iterable[Item], manifest: PackageManifest, target: Path, listener: DigestListener) -> None:
    """Writes a package. Local files are hard-linked if possible, so that 140 GB of weights are not written again.

    So a later change of a file in place changes both (`verify` notices that).

    :raises SettingError: the target exists, or the disk is too small.
    """
    require_absent(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    counter = Counter(manifest.size, listener)
    try:
        for item in items:
            place = fresh / item.path
            place.parent.mkdir(parents=True, exist_ok=True)
            _place(item, place)
            counter.add(item.size)
        (fresh / NAME).write_bytes(written(manifest))
        fresh.chmod(0o755)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def require_absent(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise SettingError("--to", f"{target} already exists", "Remove it, or give another path.")


def _place(item: Item, place: Path) -> None:
    if isinstance(item.origin, LocalFile):
        try:
            os.link(item.origin.path, place)
            return
        except OSError:
            pass  # another file system
    with open(place, "xb") as file:
        for chunk in item.origin.chunks():
            file.write(chunk)
