"""Unpacks a `model.tar.gz` from an untrusted source into a new directory.

Only plain files and directories are accepted. tarfile's own `data` filter changes some unsafe members and lets others
pass; here one unsafe member rejects the whole archive.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO, cast

from handler.storage.safe_paths import confined_all
from handler.storage.storage_errors import UnsafeArchive, UnsafePath

MOST_MEMBERS = 100_000
CHUNK = 1024 * 1024
# Padding after the last member. tar's blocking factor makes it about 10 KB.
MOST_AFTER = 64 * CHUNK
# tarfile reads these headers (long names, PAX records) into memory as a whole.
LARGEST_HEADER = 1024 * 1024
MOST_HEADER_BYTES = 64 * CHUNK  # of all of them, because those for all members are kept
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def unpack(stream: BinaryIO, target: Path, where: str) -> None:
    """Unpacks a tar archive, gzipped or not. `target` appears complete or not at all.

    :param target: must not exist yet.
    :param where: the archive's name, for error messages.
    :raises UnsafeArchive: the archive has links, devices, sparse files or paths outside of the target, or it is too
        large, or it was cut off.
    """
    if target.exists() or target.is_symlink():
        raise UnsafeArchive(where, f"{target} already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}-????????"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _unpack(stream, fresh, where, shutil.disk_usage(target.parent).free)
        fresh.chmod(0o755)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _unpack(stream: BinaryIO, fresh: Path, where: str, limit: int) -> None:
    plain = _decompressed(stream)
    try:
        with _Archive.open(fileobj=plain, mode="r|", tarinfo=_Member, bufsize=CHUNK) as archive:
            names: list[str] = []
            total = 0
            for number, member in enumerate(archive, 1):
                archive.members.clear()  # which would keep all headers
                total += member.size if member.isreg() else 0
                if number > MOST_MEMBERS:
                    raise UnsafeArchive(where, f"it has more than {MOST_MEMBERS:,} members")
                path = _path(member, where)
                if total > limit or member.size < 0:
                    raise UnsafeArchive(where, f"its files need more than the {limit:,} bytes that the disk has free")
                if path is not None:
                    names.append(path)
                    _write(archive, member, fresh / path, where)
        _check(names, fresh, where)
        for _ in range(MOST_AFTER // CHUNK):  # read to the end, where gzip has its checksum
            if not plain.read(CHUNK):
                return
        raise UnsafeArchive(where, f"more than {MOST_AFTER:,} bytes follow its last member")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError) as error:
        # tarfile calls itself for each header that follows another.
        reason = f"{type(error).__name__}: {str(error)[:120]}"
        raise UnsafeArchive(where, f"it is cut off or not a tar archive ({reason})") from error


def _decompressed(stream: BinaryIO) -> IO[bytes]:
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast("io.RawIOBase", stream), CHUNK)
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=buffered))
    return buffered


class _Archive(tarfile.TarFile):
    members: list[tarfile.TarInfo]
    header_bytes = 0


class _Member(tarfile.TarInfo):
    def _proc_member(self, archive: _Archive) -> tarfile.TarInfo:
        """Called with each header before it is read on, and made to be overridden (tarfile.py)."""
        if self.type in HEADERS:
            archive.header_bytes += self.size
            if self.size > LARGEST_HEADER:
                raise tarfile.ReadError(f"a header of {self.size:,} bytes")
            if archive.header_bytes > MOST_HEADER_BYTES:
                raise tarfile.ReadError(f"headers of {archive.header_bytes:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            return _sparse(self)
        return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, headers: dict[str, str], archive: _Archive) -> None:
        _sparse(member)


def _sparse(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Marks a sparse file, for `_path`. The map of its holes is not read: it may have any length."""
    member.sparse = b""
    return member


def _path(member: tarfile.TarInfo, where: str) -> str | None:
    """Returns the member's path below the target. None for the archive's own root, which many archives list as `./`."""
    if not (member.isreg() or member.isdir()) or member.issparse():
        kind = "a link" if member.issym() or member.islnk() else "a sparse file" if member.issparse() else "a device"
        raise UnsafeArchive(where, f"its member {member.name[:120]!r} is {kind}")
    name = member.name.removeprefix("./").rstrip("/")
    if name in {"", "."}:
        return None
    _require_safe([name], where)
    return name


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, where: str) -> None:
    try:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, CHUNK)
            if file.tell() != member.size:
                raise UnsafeArchive(where, f"it ends within {member.name[:120]!r}")
    except (FileExistsError, NotADirectoryError) as error:
        raise UnsafeArchive(where, f"it has the member {member.name[:120]!r} twice") from error


def _check(names: list[str], fresh: Path, where: str) -> None:
    """Rejects names that clash with each other, for example two that differ only by case."""
    _require_safe([name for name in names if (fresh / name).is_file()], where)
    if not names:
        raise UnsafeArchive(where, "it is empty")


def _require_safe(names: list[str], where: str) -> None:
    try:
        confined_all(names)
    except UnsafePath as error:
        raise UnsafeArchive(where, f"its member {error.where!r} {error.problem}") from error
