"""Restores entries of the store to the directory that the engine loads.

The parts are checked while they stream. An interrupted restore is resumed: the parts on disk are digested again, and
kept if they are correct. There is no journal of finished parts. It would have to be synced together with them to be
reliable after a crash, and digesting is faster than downloading (4 GB/s on one core, measured).
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore_target import SETTING, RestoreContents, RestoreTarget
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.storage.retry import DOWNLOADS, Retry
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import RestoreTimedOut, StoreUnavailable
from handler.storage.transfer import download_directory
from handler.storage.transfer.download_directory import TargetRefused, locked
from handler.storage.transfer.download_pool import DownloadPool, threads_here
from handler.storage.transfer.transfer import TransferSource
from handler.storage.transfer.transfer_progress import ProgressListener, TransferProgress, ignore_progress


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The options of a restore. `threads` is the number of concurrent connections, each with 1 MiB of memory."""

    threads: int = field(default_factory=threads_here)
    retry: Retry = DOWNLOADS


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. Sizes in bytes, time in seconds.

    :param fetched: the bytes received. 0 if the directory existed already.
    :param kept: the bytes that an earlier restore had written.
    :param retries: how often a part had to be requested again.
    """

    path: Path
    size: int
    fetched: int
    kept: int
    retries: int
    seconds: float


def restore(
    manifests: Sequence[Manifest],
    source: TransferSource,
    target: Path,
    *,
    paths: ModelPaths | None = None,
    progress: ProgressListener = ignore_progress,
    deadline: float = math.inf,
    options: RestoreOptions | None = None,
) -> Restored:
    """Makes `target` contain exactly the files of the entries, with this machine's paths inside `neuron_config.json`.

    The directory appears complete, by one rename. If several processes restore the same directory, one does the work
    and the others wait. If the directory exists with the right content, only those paths are rewritten.

    :param manifests: one entry, or several that belong together (a graph and its weights), in the order of the
        download.
    :param paths: written into the configurations after their digests were checked, before the rename.
    :param progress: called from this thread, several times a second.
    :param deadline: monotonic seconds (`time.monotonic`) after which the restore fails.
    :raises SettingError: the target cannot be written (TargetRefused), or its disk is too small (NoSpace).
    :raises DigestMismatch: a part had a wrong digest twice.
    :raises RestoreTimedOut: the deadline passed. The next restore resumes.
    :raises ArtifactError: an object is missing or cannot be read.
    """
    began = time.monotonic()
    options, paths = options or RestoreOptions(), paths or ModelPaths()
    contents = RestoreContents.of(manifests)
    place = RestoreTarget(target, contents)

    def waiting() -> None:
        progress(TransferProgress(0, contents.size, waiting=True))
        if time.monotonic() > deadline:
            raise RestoreTimedOut(target, 0, contents.size, "waiting for another process that restores the directory")

    with _translated(place):
        place.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.lock, waiting):
            names = [file.path for file in contents.files]
            if place.finished():
                paths.rewrite(place.path, names, place.scratch)
                progress(TransferProgress(contents.size, contents.size))
                return Restored(place.path, contents.size, 0, contents.size, 0, time.monotonic() - began)
            resume = place.prepare()
            present = download_directory.used(place.partial) if resume else 0
            sizes = [file.size for file in contents.files]
            download_directory.require_space(place.path.parent, sizes, present, SETTING)
            pool = DownloadPool(place.partial, place.path, source, options.retry, options.threads, deadline)
            pool.download(contents.parts(), contents.size, progress, resume=resume)
            for file in contents.files:
                if not file.size:
                    (place.partial / file.path).touch()
            paths.rewrite(place.partial, names, place.scratch)
            place.appear()
    workers = pool.workers
    return Restored(
        place.path,
        contents.size,
        sum(worker.fetched for worker in workers),
        sum(worker.kept for worker in workers),
        sum(worker.retries for worker in workers),
        time.monotonic() - began,
    )


def source_of(store: ArtifactStore) -> TransferSource:
    """Returns a source that reads the objects of a store.

    :raises CredentialsRefused: the store is in S3, and there are no credentials.
    """
    if not isinstance(store.objects, S3Objects):
        from handler.storage.transfer.directory_transfer import DirectorySource

        return DirectorySource(store.object_location)
    from handler.storage.transfer.s3_transfer import S3Source

    return S3Source(store.objects.bucket, store.object_location, store.objects.client)


@contextmanager
def _translated(place: RestoreTarget) -> Iterator[None]:
    """Turns an error of the file system into one that names the setting."""
    try:
        with download_directory.full_disk_named(SETTING, place.path.parent):
            yield
    except OSError as error:
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError) or error.errno == errno.EROFS:
            raise TargetRefused(SETTING, place.path, f"cannot be written ({error.strerror})") from error
        raise StoreUnavailable(str(place.path), error.strerror or type(error).__name__) from error
