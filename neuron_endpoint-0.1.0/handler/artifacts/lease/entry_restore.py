"""Restores entries of the store, and tells a damaged entry from a store that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from handler.artifacts.lease.acquisition_options import Restore
from handler.artifacts.store import object_names
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.storage.object_store import size_of
from handler.storage.storage_errors import ArtifactError, DigestMismatch, EntryDamaged, NotFound, StoreUnavailable


class EntryRestore:
    """The restore of one start's entries. It may be tried again.

    :param target: the directory to restore to.
    """

    def __init__(self, store: ArtifactStore, restore: Restore, target: Path) -> None:
        self._store, self._restore, self._target = store, restore, target
        self._vanished = False

    def run(self, manifests: Sequence[Manifest]) -> bool:
        """Restores entries. False: one was deleted after it was found, and is to be looked for again.

        :raises EntryDamaged: an object is missing for the second time, is cut short, or has another content.
        :raises ArtifactError: the store or the restore failed.
        """
        try:
            self._restore(manifests, self._target)
        except NotFound as error:
            if self._vanished:
                raise self._damaged(manifests, error) from error
            self._vanished = True
            return False
        except DigestMismatch as error:
            raise self._damaged(manifests, error) from error
        except StoreUnavailable as error:
            if self._sizes_differ(manifests):
                raise self._damaged(manifests, error) from error
            raise
        return True

    def _sizes_differ(self, manifests: Sequence[Manifest]) -> bool:
        """Whether objects are cut short. Each request for such an object looks like a broken connection."""
        for file in chain.from_iterable(manifest.files for manifest in manifests):
            if size_of(self._store.objects, object_names.object_name(file.digest)) not in {None, file.size}:
                return True
        return False

    def _damaged(self, manifests: Sequence[Manifest], error: ArtifactError) -> EntryDamaged:
        names = [object_names.manifest_name(manifest.kind, manifest.key) for manifest in manifests]
        return EntryDamaged([self._store.objects.location(name).uri for name in names], error)
