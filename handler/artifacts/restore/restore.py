"""Restore: from an entry of the store to the directory that the engine loads, or to a clear error and no directory.

What is fetched is checked while it streams, part by part. A restore that was cut off is gone on with: what is on disk
is digested again and kept where it is right. No journal says which parts are there: it would have to be synced with
them to be believed after a crash, and digesting is faster than fetching (4 GB/s on one core, measured).
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.restore import disk_space
from handler.artifacts.restore.download_pool import DownloadPool
from handler.artifacts.restore.model_paths import ModelPaths
from handler.artifacts.restore.restore_errors import NoSpace, RestoreTimedOut, TargetRefused
from handler.artifacts.restore.restore_lock import locked
from handler.artifacts.restore.restore_parts import RestoreContents
from handler.artifacts.restore.restore_target import RestoreTarget
from handler.artifacts.restore.transfer import TransferSource
from handler.artifacts.restore.transfer_progress import ProgressListener, TransferProgress, unheard
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.storage.retry import Retry
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import StoreUnavailable


def threads_here() -> int:
    """Connections for this machine: four for each CPU, from 8 to 64.

    On two CPUs and a server on loopback 4, 8 and 16 are equally fast (measured). S3 gives one connection some 85 to 90
    MB/s ("Performance design patterns for Amazon S3"), so a large instance needs many.
    """
    return min(64, max(8, 4 * len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """How a restore goes about it.

    :param threads: connections at once, each with 256 KB of memory.
    :param setting: the setting that the target is from, for errors.
    """

    threads: int = field(default_factory=threads_here)
    retry: Retry = field(default_factory=Retry)
    setting: str = "ENDPOINT_SCRATCH"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. Sizes in bytes, time in seconds.

    :param fetched: came over the wire; 0 when the directory was there already.
    :param kept: was left in place by an earlier restore.
    :param retries: parts that had to be fetched again.
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
    progress: ProgressListener = unheard,
    deadline: float = math.inf,
    options: RestoreOptions | None = None,
) -> Restored:
    """Makes `target` exactly the files of the entries, with the paths inside `neuron_config.json` of this machine.

    The directory appears by one rename, complete. Several processes may restore the same one: one does, the others
    wait and find it. A directory that is there already and is the right one is left, but for those paths.

    :param manifests: one entry, or several that belong together: a graph's and its weights'. Fetched in this order.
    :param paths: written into the configurations after their digests were checked, before the rename.
    :param progress: called from this thread, several times a second.
    :param deadline: monotonic seconds (`time.monotonic`) after which it gives up.
    :raises SettingError: the target may not or cannot be written (TargetRefused), or is too small (NoSpace).
    :raises DigestMismatch: a part was wrong twice.
    :raises RestoreTimedOut: the deadline passed. The next restore goes on from there.
    :raises ArtifactError: an object is missing, may not be read, or cannot be had.
    """
    began = time.monotonic()
    options, paths = options or RestoreOptions(), paths or ModelPaths()
    contents = RestoreContents.of(manifests)
    place = RestoreTarget(target, contents, options.setting)

    def waiting() -> None:
        progress(TransferProgress(0, contents.size, waiting=True))
        if time.monotonic() > deadline:
            raise RestoreTimedOut(target, 0, contents.size, "waiting for another process that restores it")

    with _told(place):
        place.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.lock, waiting):
            names = [file.path for file in contents.files]
            if place.finished():
                paths.rewrite(place.path, names, place.scratch)
                progress(TransferProgress(contents.size, contents.size))
                return Restored(place.path, contents.size, 0, contents.size, 0, time.monotonic() - began)
            left = place.prepare()
            present = disk_space.used(place.partial) if left else 0
            disk_space.require(place.path.parent, [file.size for file in contents.files], present, options.setting)
            crew = DownloadPool(place.partial, place.path, source, options.retry, options.threads, deadline)
            crew.bring(contents.parts(), contents.size, progress, resume=left)
            for file in contents.files:
                if not file.size:
                    (place.partial / file.path).touch()
            paths.rewrite(place.partial, names, place.scratch)
            place.appear()
    workers = crew.workers
    return Restored(
        place.path,
        contents.size,
        sum(worker.fetched for worker in workers),
        sum(worker.kept for worker in workers),
        sum(worker.retries for worker in workers),
        time.monotonic() - began,
    )


def source_of(store: ArtifactStore) -> TransferSource:
    """The objects of a store, to be read directly.

    :raises CredentialsRefused: it is in S3 and there are no credentials.
    """
    if not isinstance(store.objects, S3Objects):
        from handler.artifacts.restore.directory_transfer import DirectorySource

        return DirectorySource(store.object_location)
    from handler.artifacts.restore.s3_transfer import S3Source
    from handler.storage.s3_requests import S3Requests

    return S3Source(S3Requests(store.objects.bucket, store.objects.client), store.object_location)


@contextmanager
def _told(place: RestoreTarget) -> Iterator[None]:
    """What the file system refuses, as an error that names the setting."""
    try:
        yield
    except OSError as error:
        if error.errno in disk_space.FULL:
            free = disk_space.free(place.path.parent)
            raise NoSpace(place.setting, place.path.parent, 0, free, error.strerror or "") from error
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError) or error.errno == errno.EROFS:
            raise TargetRefused(place.setting, place.path, f"cannot be written ({error.strerror})") from error
        raise StoreUnavailable(str(place.path), error.strerror or type(error).__name__) from error
