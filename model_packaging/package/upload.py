"""Uploads a package to an S3 prefix, which SageMaker makes available at `/opt/ml/model`. Each file is one object.

Files that exist with the same size, digest and key are skipped. The manifest is written last, so a prefix without one
is not a package. Nothing is uploaded before every file was read and checked for tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from handler.artifacts.store.manifest import FileEntry
from handler.errors import SettingError
from handler.storage.s3_client import list_objects, make_client
from handler.storage.s3_download import split_uri
from handler.storage.s3_errors import translated
from handler.storage.storage_errors import ChangedFile, Conflict, NotFound
from handler.storage.transfer.transfer_progress import ByteCounter, ByteProgress
from model_packaging.package import package_manifest as manifests
from model_packaging.package.package_item import GeneratedItem, Item, LocalFile, S3File
from model_packaging.package.package_manifest import NAME, PackageManifest
from model_packaging.package.package_writer import ARCHIVES, require_package_name

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

FILES_AT_ONCE = 4
DIGEST = "blake3"
# The path of an entry of an artifact store.
STORE = re.compile(r"(?:^|/)manifests/[^/]+/[0-9a-f]+\.json$")


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The destination of a package.

    :param kms_key: the KMS key for every object. None uses the bucket's default encryption.
    :param replace: overwrite the files of another package, and delete files that are not part of this one.
    """

    client: S3Client
    bucket: str
    prefix: str
    kms_key: str | None = None
    replace: bool = False

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @classmethod
    def parse(cls, uri: str, kms_key: str | None, replace: bool) -> UploadTarget:
        """Parses the destination of `push`.

        :raises SettingError: it is not an S3 prefix.
        """
        if not uri.startswith("s3://"):
            raise SettingError("DESTINATION", f"'{uri}' is not in S3", "Write s3://bucket/prefix/.")
        require_package_name("DESTINATION", uri)
        if uri.endswith(ARCHIVES):
            fix = "Give a prefix; or make the archive with `pack`, and upload it with `aws s3 cp`."
            raise SettingError("DESTINATION", "push uploads files, not an archive", fix)
        bucket, prefix = split_uri(uri, "DESTINATION")
        if not prefix:
            problem = "a package needs a prefix, not a whole bucket"
            raise SettingError("DESTINATION", problem, "Write s3://bucket/prefix/.")
        return cls(make_client(), bucket, prefix, kms_key, replace)

    def key(self, path: str) -> str:
        return f"{self.prefix}{path}"

    def arguments(self, digest: str = "") -> dict[str, Any]:
        """Returns the further parameters of an upload: metadata and encryption."""
        metadata: dict[str, Any] = {"Metadata": {DIGEST: digest}} if digest else {}
        kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key}
        return {**metadata, **kms} if self.kms_key else metadata

    def encrypts(self, head: Mapping[str, Any]) -> bool:
        """Whether an object is encrypted with the target's key.

        S3 tells the key's ARN (PutObject's response and HeadObject). Which key an alias means is not known here.
        """
        if not self.kms_key:
            return True
        if "alias/" in self.kms_key:
            return str(head.get("ServerSideEncryption")).startswith("aws:kms")
        return str(head.get("SSEKMSKeyId")).rpartition("/")[2] == self.kms_key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of an upload. Sizes in bytes; `kept` was in S3 already."""

    files: int
    sent: int
    kept: int
    deleted: int


class PackageDifference(NamedTuple):
    """How a package differs from what is below the prefix.

    :param before: the manifest there, if there is one.
    :param others: paths there that are not part of the package.
    """

    before: PackageManifest | None
    others: list[str]
    missing: list[Item]


def compare(items: Sequence[Item], manifest: PackageManifest, target: UploadTarget) -> PackageDifference:
    """Finds the files that `push` has to upload. Uploads nothing.

    :raises SettingError: the prefix has other files, and `replace` is not set.
    """
    with translated(target.uri, "s3:ListBucket"):
        objects = list_objects(target.client, target.bucket, target.prefix)
        listed = ((item.key.removeprefix(target.prefix), item.size) for item in objects)
        there = {path: size for path, size in listed if path and not path.endswith("/")}  # folders of the S3 console
    before = _manifest(target)
    others = sorted(set(there) - {item.path for item in items} - {NAME})
    _require_ours(target, manifest, before, others)
    if target.replace:
        _require_alone(target, items, others)
    known = {file.path: file.digest for file in before.files} if before else {}

    def is_there(file: FileEntry) -> bool:
        return there.get(file.path) == file.size and _is_same(target, file, known)

    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="compare") as pool:
        kept = {
            file.path for file, same in zip(manifest.files, pool.map(is_there, manifest.files), strict=True) if same
        }
    return PackageDifference(before, others, [item for item in items if item.path not in kept])


def push(items: Sequence[Item], manifest: PackageManifest, target: UploadTarget, listener: ByteProgress) -> Pushed:
    """Uploads the missing files.

    :raises SettingError: the prefix has other files, and `replace` is not set.
    :raises ArtifactError: the upload failed. The same call again resumes it.
    """
    before, others, missing = compare(items, manifest, target)
    entries = {file.path: file for file in manifest.files}
    kept = manifest.size - sum(entries[item.path].size for item in missing)
    counter = ByteCounter(manifest.size, listener)
    counter.add(kept)
    if before is not None and before != manifest:
        _delete(target, [NAME])  # the prefix is not a package until the upload is complete
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="push") as pool:
        list(pool.map(lambda item: _send(item, entries[item.path], target, counter), missing))
    _delete(target, others)
    body = manifests.written(manifest)
    with translated(f"{target.uri}{NAME}", "s3:PutObject"):
        target.client.put_object(Bucket=target.bucket, Key=target.key(NAME), Body=body, **target.arguments())
    return Pushed(len(items), sum(item.size for item in missing), kept, len(others))


def _require_ours(
    target: UploadTarget, manifest: PackageManifest, before: PackageManifest | None, others: Sequence[str]
) -> None:
    if target.replace:
        return
    fix = "Push to another prefix (an endpoint that scales out would load a mix of both), or give --replace."
    if before is not None and before != manifest:
        raise SettingError("DESTINATION", f"{target.uri} holds another package", fix)
    if others:
        names = ", ".join(others[:4])
        problem = f"{target.uri} holds {len(others)} other files ({names}), which SageMaker would load as well"
        raise SettingError("DESTINATION", problem, fix)


def _require_alone(target: UploadTarget, items: Sequence[Item], others: Sequence[str]) -> None:
    """What --replace never deletes: other packages, a store, and what it copies from."""
    packages = [path for path in others if path.endswith(f"/{NAME}") or STORE.search(path)]
    if packages:
        problem = f"{target.uri} holds other packages or a store ({', '.join(packages[:4])})"
        raise SettingError("DESTINATION", problem, "Give the prefix of the one package that this one replaces.")
    origins = (item.origin for item in items if isinstance(item.origin, S3File))
    if others and any(origin.bucket == target.bucket and origin.key.startswith(target.prefix) for origin in origins):
        fix = "Push to another prefix."
        raise SettingError("DESTINATION", f"{target.uri} holds the model itself, which would be deleted", fix)


def _manifest(target: UploadTarget) -> PackageManifest | None:
    uri = f"{target.uri}{NAME}"
    try:
        with translated(uri, "s3:GetObject"):
            reply = target.client.get_object(Bucket=target.bucket, Key=target.key(NAME))
            body = reply["Body"].read(manifests.MOST_BYTES)
        return manifests.read(body, uri)
    except (NotFound, manifests.InvalidPackage):
        return None


def _is_same(target: UploadTarget, file: FileEntry, known: Mapping[str, str]) -> bool:
    """Whether an object has the file's content, under the target's key."""
    digest = known.get(file.path)
    if digest is not None and not target.kms_key:
        return digest == file.digest
    with translated(f"{target.uri}{file.path}", "s3:GetObject"):
        head = target.client.head_object(Bucket=target.bucket, Key=target.key(file.path))
    return (digest or head.get("Metadata", {}).get(DIGEST, "")) == file.digest and target.encrypts(head)


def _send(item: Item, entry: FileEntry, target: UploadTarget, counter: ByteCounter) -> None:
    origin, key, arguments = item.origin, target.key(item.path), target.arguments(entry.digest)
    try:
        with translated(f"{target.uri}{item.path}", "s3:PutObject"):
            if isinstance(origin, LocalFile):
                with open(origin.path, "rb") as file:
                    target.client.upload_fileobj(file, target.bucket, key, ExtraArgs=arguments, Callback=counter.add)
                if origin.path.stat().st_size != entry.size:
                    raise ChangedFile(item.path)
                return
            if isinstance(origin, S3File):  # It is copied within S3, without a download.
                unchanged = {"MetadataDirective": "REPLACE", "CopySourceIfMatch": origin.etag}
                source: Any = {"Bucket": origin.bucket, "Key": origin.key}
                target.client.copy(source, target.bucket, key, ExtraArgs={**arguments, **unchanged})
            elif isinstance(origin, GeneratedItem):
                target.client.put_object(Bucket=target.bucket, Key=key, Body=origin.body, **arguments)
    except Conflict as error:
        raise ChangedFile(item.path) from error
    counter.add(item.size)


def _delete(target: UploadTarget, paths: Sequence[str]) -> None:
    for path in paths:
        with translated(f"{target.uri}{path}", "s3:DeleteObject"):
            target.client.delete_object(Bucket=target.bucket, Key=target.key(path))
