"""Unpacks a model.tar.gz safely."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

KEPT_FREE = 256 * 1024 * 1024


class BadArchive(Exception):
    """An archive is rejected. The message completes the sentence "it ..."."""


def unpack(archive: Path, into: Path) -> None:
    """Unpacks files and directories. Links, devices and paths outside of the target are rejected.

    :raises BadArchive: it is not a tar.gz archive, is cut off, has other members, or would fill the disk.
    """
    into.mkdir(parents=True, exist_ok=True)
    left = shutil.disk_usage(into).free - KEPT_FREE
    try:
        with tarfile.open(archive, "r:gz") as opened:
            # Debian 12's Python 3.11.2 has no filters. `_check` rejects what this one does.
            opened.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in opened:
                _check(member)
                left -= member.size
                if left < 0:
                    raise BadArchive("it is larger than the free disk space")
                opened.extract(member, into, set_attrs=False)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise BadArchive(f"it is not a valid tar.gz archive ({error})") from error


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise BadArchive(f"{member.name!r} leads out of the model's directory")
    if not (member.isreg() or member.isdir()):
        raise BadArchive(f"{member.name!r} is neither a file nor a directory")
