"""A model.tar.gz, unpacked where it can do no harm."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

KEPT_FREE = 256 * 1024 * 1024


class BadArchive(Exception):
    """Why an archive is refused."""


def unpack(archive: Path, into: Path) -> None:
    """Files and directories only, as SageMaker's model archives are; links, devices and ways out are refused.

    :raises BadArchive: it is none, it is cut, it holds something else, or it would fill the disk.
    """
    into.mkdir(parents=True, exist_ok=True)
    left = shutil.disk_usage(into).free - KEPT_FREE
    try:
        with tarfile.open(archive, "r:gz") as opened:
            for member in opened:
                _check(member)
                left -= member.size
                if left < 0:
                    raise BadArchive("it is larger than the free disk space")
                opened.extract(member, into, set_attrs=False, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise BadArchive(f"it is no valid tar.gz archive ({error})") from error


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise BadArchive(f"{member.name!r} leads out of the model's directory")
    if not (member.isreg() or member.isdir()):
        raise BadArchive(f"{member.name!r} is neither a file nor a directory")
