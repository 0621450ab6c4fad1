"""Parses the destination of `push`, and uploads an archive, which is one object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from handler.artifacts.store.manifest import FileEntry
from handler.errors import SettingError
from handler.storage.s3_download import split_uri
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import NotFound
from model_packaging.package import multipart
from model_packaging.package.digesting import Counter, DigestListener
from model_packaging.package.package_reader import open_package
from model_packaging.package.package_writer import require_package_name
from model_packaging.package.upload import DIGEST, Pushed, UploadTarget


def target_of(destination: str, kms_key: str | None, replaces: bool) -> UploadTarget:
    """Returns the target of a destination.

    :raises SettingError: it is not an S3 URI, or it is a whole bucket.
    """
    from handler.storage.s3_client import make_client

    if not destination.startswith("s3://"):
        raise SettingError("DESTINATION", f"'{destination}' is not in S3", "Write s3://bucket/prefix/.")
    require_package_name("DESTINATION", destination)
    bucket, prefix = split_uri(destination, "DESTINATION")
    if not prefix:
        raise SettingError("DESTINATION", "a package needs a prefix, not a whole bucket", "Write s3://bucket/prefix/.")
    return UploadTarget(make_client(), bucket, prefix, kms_key, replaces)


def push_archive(
    archive: Path, destination: str, target: UploadTarget, listener: DigestListener, dry_run: bool
) -> Pushed:
    """Uploads a `model.tar.gz` that `pack` made, unless the object exists with the same digest.

    :raises InvalidPackage: `pack` did not make it. Other archives may contain links or tokens.
    """
    open_package(str(archive))
    entry = FileEntry.of_file(archive, archive.name)
    place = replace(target.destination("", entry.digest), key=target.prefix.rstrip("/"))
    counter = Counter(entry.size, listener)
    try:
        with translated(destination, "s3:GetObject"):
            head = place.client.head_object(Bucket=place.bucket, Key=place.key)
        if head.get("Metadata", {}).get(DIGEST) == entry.digest:
            counter.add(entry.size)
            return Pushed(files=1, kept=entry.size)
        if not target.replace:
            raise SettingError("DESTINATION", f"{destination} is another archive", "Give another key, or --replace.")
    except NotFound:
        pass
    if dry_run:
        return Pushed(files=1)
    sent = multipart.upload(archive, place, counter.add)
    return Pushed(files=1, sent=sent.sent, kept=sent.kept)
