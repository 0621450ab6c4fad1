"""Reads and verifies an existing package: a folder, an S3 prefix, or a `model.tar.gz` on disk or in S3."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import IO, Any

from handler.artifacts.store.artifact_store import Damage
from handler.artifacts.store.manifest import FileEntry
from handler.storage.storage_errors import NotFound, UnsafeArchive
from model_packaging.package import package_manifest as manifests
from model_packaging.package.digesting import Counter, DigestListener
from model_packaging.package.package_item import CHUNK, Item
from model_packaging.package.package_manifest import NAME, InvalidPackage, PackageManifest
from model_packaging.package.sources import items

PackageContents = Iterator[tuple[str, int, Iterator[bytes]]]


@dataclass(frozen=True, slots=True)
class Package:
    """An existing package.

    :param contents: path, size and content of every file except the manifest, in stored order. The content must be read
        before the next file.
    """

    uri: str
    manifest: PackageManifest
    contents: Callable[[], PackageContents]


def open_package(place: str) -> Package:
    """Opens a package: a folder, s3://bucket/prefix, or a tar.gz on disk or in S3.

    :raises InvalidPackage: it has no manifest, or an invalid one.
    :raises SettingError: it does not exist.
    """
    if place.endswith((".tar.gz", ".tgz")):
        return _archive(place)
    by_path = {item.path: item for item in items(place, "PACKAGE")}
    if NAME not in by_path:
        raise InvalidPackage(place, f"it has no {NAME}")
    manifest = manifests.read(_whole(by_path.pop(NAME)), f"{place.rstrip('/')}/{NAME}")

    def contents() -> PackageContents:
        for path, item in by_path.items():
            yield path, item.size, item.origin.chunks()

    return Package(place, manifest, contents)


def verify(package: Package, listener: DigestListener) -> list[Damage]:
    """Returns the files that are missing, changed or not part of the package, sorted by path. Reads every byte."""
    listed = {file.path: file for file in package.manifest.files}
    counter = Counter(package.manifest.size, listener)
    faults, seen = [], set()
    for path, size, chunks in package.contents():
        entry = listed.get(path)
        if path in seen:
            faults.append(Damage(path, "is there twice"))
        elif entry is None:
            faults.append(Damage(path, "is not part of the package, but would be loaded with it"))
        elif size != entry.size:
            faults.append(Damage(path, f"has {size:,} bytes, not {entry.size:,}"))
        elif FileEntry.of_chunks(chunks, path).digest != entry.digest:
            faults.append(Damage(path, "has other content"))
        seen.add(path)
        counter.add(entry.size if entry else 0)
    faults += [Damage(path, "is missing") for path in listed if path not in seen]
    return sorted(faults, key=lambda fault: fault.path)


def _whole(item: Item) -> bytes:
    if item.size > manifests.MOST_BYTES:
        raise InvalidPackage(item.path, f"its manifest has {item.size:,} bytes")
    return b"".join(item.origin.chunks())


def _archive(place: str) -> Package:
    def contents() -> PackageContents:
        with _stream(place) as stream, _tar(stream, place) as tar:
            while (member := _next(tar, place)) is not None:
                if not member.isreg():
                    raise UnsafeArchive(place, f"its member {member.name[:120]!r} is not a plain file")
                if member.name != NAME:
                    yield member.name, member.size, _chunks(tar, member, place)

    with _stream(place) as stream, _tar(stream, place) as tar:
        first = _next(tar, place)
        if first is None or not first.isreg() or first.name != NAME or first.size > manifests.MOST_BYTES:
            raise InvalidPackage(place, f"its first member is not {NAME}")
        manifest = manifests.read(b"".join(_chunks(tar, first, place)), place)
    return Package(place, manifest, contents)


def _tar(stream: IO[bytes], place: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r|gz", bufsize=CHUNK)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidPackage(place, f"it is not a tar.gz ({type(error).__name__})") from error


def _stream(place: str) -> AbstractContextManager[Any]:
    if not place.startswith("s3://"):
        try:
            return open(place, "rb")
        except OSError as error:
            raise NotFound(place) from error
    from handler.storage.s3_client import make_client
    from handler.storage.s3_errors import translated

    bucket, _, key = place.removeprefix("s3://").partition("/")
    with translated(place, "s3:GetObject"):
        # `with` of boto3's body itself would give urllib3's file, which closes itself at the end.
        return closing(make_client().get_object(Bucket=bucket, Key=key)["Body"])


def _next(tar: tarfile.TarFile, place: str) -> tarfile.TarInfo | None:
    with _told(place):
        return tar.next()


def _chunks(tar: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> Iterator[bytes]:
    content = tar.extractfile(member)
    assert content is not None
    while True:
        with _told(place):
            chunk = content.read(CHUNK)
        if not chunk:
            return
        yield chunk


@contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UnsafeArchive(place, f"it is cut off or damaged ({type(error).__name__})") from error
