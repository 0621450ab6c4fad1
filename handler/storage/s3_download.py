"""Downloads a model from S3, in parts and over many connections. The target directory appears complete or not at all.

    <target>                       the finished directory: appears by one rename
    .<target>-<identity>           the files that are whole; a killed process leaves them for the next
    .<target>-<identity>.incoming  the files that are written now; a killed process's are deleted

S3 has no digest that could be checked for a part. A part counts if S3 sends its whole length from the version of the
object that was listed (`If-Match` with its ETag). A file counts as whole with its last part, when it is renamed.
Nothing is synced to disk, so what was left in an earlier boot of the machine is not used.
"""

from __future__ import annotations

import glob
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from handler.errors import SettingError, StartFailed
from handler.storage.object_store import Location
from handler.storage.retry import DOWNLOADS, Retry
from handler.storage.s3_client import list_objects, make_client
from handler.storage.s3_errors import translated
from handler.storage.safe_paths import confined
from handler.storage.storage_errors import ArtifactError, UnsafePath
from handler.storage.transfer.download_directory import (
    boot_id,
    full_disk_named,
    locked,
    mark_written,
    require_space,
    written_here,
)
from handler.storage.transfer.download_pool import DownloadPool, threads_here
from handler.storage.transfer.transfer import FilePart
from handler.storage.transfer.transfer_progress import ByteProgress

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

STAGE = "fetch model"
SCRATCH = "ENDPOINT_SCRATCH"
PART = 16 * 1024 * 1024  # bytes; S3 advises 8 to 16 MB ("Performance design patterns for Amazon S3")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One object below a prefix. `path` is relative to the prefix and does not leave it."""

    key: str
    path: str
    size: int
    etag: str

    @property
    def digest(self) -> str:
        """The version of the object."""
        return f"{self.key} {self.etag}"

    def parts(self) -> list[FilePart]:
        return [FilePart(self, offset, min(PART, self.size - offset), None) for offset in range(0, self.size, PART)]


def download_prefix(
    uri: str,
    target: Path,
    setting: str,
    progress: ByteProgress,
    retry: Retry = DOWNLOADS,
    *,
    latest: bool = False,
    unread: Callable[[Collection[str]], Collection[str]] = lambda paths: (),
) -> Path:
    """Downloads the objects below `uri` to `target`, and returns it. Returns at once if it was downloaded in this boot.

    If several processes download to the same directory, one does the work and the others wait. Credentials, region and
    endpoint are botocore's own (`AWS_ENDPOINT_URL` for a server on loopback).

    :param latest: downloads what S3 has now. Each version has a directory, whose name begins with `target`'s.
    :param unread: returns those of the paths below `uri` that are left out.
    :raises SettingError: there are no objects, or a key would leave the target.
    :raises StartFailed: S3 refused the request or the connection broke.
    """
    if not latest and written_here(target):
        return target
    bucket, prefix = split_uri(uri, setting)
    try:
        with translated(uri, "s3:ListBucket and s3:GetObject"):
            client = make_client()
            files = list_files(client, bucket, prefix, setting)
        if not files:
            raise SettingError(setting, f"{uri} has no objects", "Check the bucket, the prefix and the region.")
        left_out = unread({file.path for file in files})
        files = [file for file in files if file.path not in left_out]
        if latest:
            version = sha256("\n".join(f"{file.path}\0{file.digest}" for file in files).encode()).hexdigest()
            target = target.with_name(f"{target.name}-{version[:16]}")
        if not written_here(target):
            with full_disk_named(SCRATCH, target.parent):
                _ModelFetch(client, bucket, files, target, progress).run(retry)
    except ArtifactError as error:
        raise StartFailed(STAGE, error.message) from error
    return target


def split_uri(uri: str, setting: str) -> tuple[str, str]:
    """Splits `s3://bucket/a/b` into `bucket` and `a/b/`. An empty prefix stays empty."""
    bucket, _, path = uri.removeprefix("s3://").partition("/")  # no URL parser: a key may contain "?" and "#"
    prefix = path.strip("/")
    if not bucket:
        raise SettingError(setting, f"'{uri}' names no bucket", "Write s3://bucket/prefix.")
    return bucket, f"{prefix}/" if prefix else ""


def list_files(client: S3Client, bucket: str, prefix: str, setting: str) -> list[RemoteFile]:
    """Returns the files below a prefix. Skips the "folder" objects that the S3 console creates.

    :raises SettingError: a key is no safe path, or lies below another key.
    """
    files = []
    for item in list_objects(client, bucket, prefix):
        relative = item.key.removeprefix(prefix)
        if not relative or relative.endswith("/"):
            continue
        try:
            files.append(RemoteFile(item.key, confined(relative), item.size, item.etag))
        except UnsafePath as error:
            why = f"the key '{item.key[:200]}' is no path in the model's directory: it {error.problem}"
            raise SettingError(setting, why, "Remove it.") from None
    paths = {PurePosixPath(file.path) for file in files}
    for file in files:
        if not paths.isdisjoint(PurePosixPath(file.path).parents):
            raise SettingError(setting, f"the key '{file.key}' lies below another that is a file", "Remove one.")
    return files


class _ModelFetch:
    """One download of files to a directory."""

    def __init__(
        self, client: S3Client, bucket: str, files: list[RemoteFile], target: Path, progress: ByteProgress
    ) -> None:
        self._client, self._bucket, self._files, self._target = client, bucket, files, target
        self._total, self._progress = sum(file.size for file in files), progress
        content = "\n".join([boot_id(), *(f"{file.path}\0{file.size}\0{file.etag}" for file in files)])
        self._whole = target.with_name(f".{target.name}-{sha256(content.encode()).hexdigest()[:16]}")
        self._incoming = self._whole.with_name(f"{self._whole.name}.incoming")
        self._lock = threading.Lock()
        self._parts_left: Counter[str] = Counter()

    def run(self, retry: Retry) -> None:
        """Returns when the target is there.

        :raises ArtifactError: an object cannot be fetched. Nothing is left.
        """
        self._remove(but=(self._whole, self._incoming))  # of another version of the model, or of an earlier boot
        while not self._run(retry):  # another process has removed the directory meanwhile
            pass

    def _run(self, retry: Retry) -> bool:
        self._whole.mkdir(parents=True, exist_ok=True)
        with locked(self._whole, lambda: self._progress(0, self._total)) as valid:
            if not valid and not written_here(self._target):
                return False
            try:
                if not written_here(self._target):
                    self._download(retry)
                    if self._target.is_dir():  # of an earlier boot
                        shutil.rmtree(self._target)
                    mark_written(self._target)
                    self._whole.rename(self._target)
            except (ArtifactError, SettingError):
                self._remove()
                raise
            self._remove()
        return True

    def _remove(self, but: tuple[Path, ...] = ()) -> None:
        for left in self._target.parent.glob(f".{glob.escape(self._target.name)}-*"):
            if left not in but:
                shutil.rmtree(left, ignore_errors=True)

    def _download(self, retry: Retry) -> None:
        from handler.storage.transfer.s3_transfer import S3Source

        shutil.rmtree(self._incoming, ignore_errors=True)
        missing = [file for file in self._files if not self._is_whole(file)]
        require_space(self._whole, [file.size for file in missing], 0, SCRATCH)
        for file in missing:
            for directory in (self._incoming, self._whole):
                (directory / file.path).parent.mkdir(parents=True, exist_ok=True)
            if not file.size:
                (self._whole / file.path).touch()
        uri = f"s3://{self._bucket}/"
        located = {file.digest: Location(uri + file.key, self._bucket, file.key, etag=file.etag) for file in missing}
        source = S3Source(self._bucket, located.__getitem__, self._client)
        parts = [part for file in missing for part in file.parts()]
        self._parts_left = Counter(part.file.path for part in parts)
        kept = self._total - sum(file.size for file in missing)
        self._progress(kept, self._total)
        pool = DownloadPool(self._incoming, self._target, source, retry, threads_here(), written=self._written)
        pool.download(parts, self._total - kept, lambda now: self._progress(kept + now.done, self._total), resume=False)

    def _written(self, part: FilePart) -> None:
        with self._lock:
            self._parts_left[part.file.path] -= 1
            whole = not self._parts_left[part.file.path]
        if whole:
            (self._incoming / part.file.path).rename(self._whole / part.file.path)

    def _is_whole(self, file: RemoteFile) -> bool:
        path = self._whole / file.path
        return path.is_file() and path.stat().st_size == file.size
