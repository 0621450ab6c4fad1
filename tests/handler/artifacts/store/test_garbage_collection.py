"""Deleting, and collecting what no entry names, while others publish."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from handler.artifacts.store import garbage_collection as collection
from handler.artifacts.store import object_names as layout
from handler.artifacts.store import publication
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.gc_marks import GRACE, Marks, MarkState
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import ConditionsIgnored, InvalidManifest, NotFound
from tests.handler.artifacts.artifact_files import KEY, ingredients, object_names, write_artifacts

KEYS = [digit * 64 for digit in "0123456789"]


def keys(store: ArtifactStore) -> list[str]:
    return [entry.key for entry in store.entries()]


def expire(store: ArtifactStore, *, older_than: float | None = None, keep: int | None = None) -> list[str]:
    """Deletes as `neuron-endpoint store rm` does. Returns the deleted keys."""
    expired = collection.expired(store.objects, older_than=older_than, keep=keep)
    return [key for kind, key, _ in expired if store.delete(key, kind)]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of the store that far ahead of its objects' times."""
    now = collection._now

    def move(seconds: float) -> None:
        monkeypatch.setattr(collection, "_now", lambda objects: now(objects) + seconds)

    return move


def publish_numbered(store: ArtifactStore, tmp_path: Path, count: int) -> None:
    for number in range(count):
        directory = tmp_path / f"numbered-{number}"
        directory.mkdir()
        (directory / "graph").write_text(f"{number}")
        store.publish(directory, ingredients(KEYS[number]))


def test_a_pinned_entry_is_never_deleted(store: ArtifactStore, directory: Path, at: Callable[[float], None]) -> None:
    store.publish(directory, ingredients())
    store.pin(KEY, "graph")
    at(1e9)
    assert expire(store, older_than=1.0, keep=0) == []
    assert not store.delete(KEY, "graph")
    assert keys(store) == [KEY]
    store.unpin(KEY, "graph")
    assert store.delete(KEY, "graph")
    assert keys(store) == []
    with pytest.raises(NotFound):
        store.pin(KEY, "graph")


def test_by_age(store: ArtifactStore, tmp_path: Path, at: Callable[[float], None]) -> None:
    publish_numbered(store, tmp_path, 3)
    at(3600.0)
    assert expire(store, older_than=7200.0) == []
    assert sorted(expire(store, older_than=1800.0)) == KEYS[:3]
    assert keys(store) == []


def numbered_store(tmp_path: Path, count: int) -> ArtifactStore:
    """A store whose entries are a second apart."""
    store = ArtifactStore.open(f"file://{tmp_path}/store")
    publish_numbered(store, tmp_path, count)
    for number in range(count):
        path = store.objects.location(layout.manifest_name("graph", KEYS[number])).path
        assert path is not None
        os.utime(path, (1000 + number, 1000 + number))
    return store


def test_by_count_the_newest_stay_and_pinned_ones_do_not_count(tmp_path: Path) -> None:
    store = numbered_store(tmp_path, 5)
    store.pin(KEYS[0], "graph")
    assert expire(store, keep=2) == [KEYS[2], KEYS[1]]
    assert keys(store) == [KEYS[0], KEYS[3], KEYS[4]]


def test_by_age_and_count_the_newest_stay_however_old_and_the_young_however_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = numbered_store(tmp_path, 5)
    monkeypatch.setattr(collection, "_now", lambda objects: 1102.5)
    assert expire(store, older_than=1.0, keep=5) == []
    assert expire(store, older_than=100.0, keep=1) == [KEYS[2], KEYS[1], KEYS[0]]
    assert expire(store, older_than=100.0, keep=0) == []
    assert expire(store) == []
    assert keys(store) == [KEYS[3], KEYS[4]]


def test_objects_go_with_the_second_collection_a_grace_later(
    store: ArtifactStore, directory: Path, at: Callable[[float], None]
) -> None:
    store.publish(directory, ingredients())
    store.publish(directory, ingredients(KEYS[1], "weights"))
    store.delete(KEY, "graph")
    before = object_names(store)
    assert store.collect() == collection.Collected()
    at(GRACE + 60)
    assert store.collect().marked == 2
    assert object_names(store) == before
    at(2 * GRACE + 120)
    done = store.collect()
    assert (done.deleted, done.deleted_bytes) == (2, sum(f.stat().st_size for f in directory.glob("*.*")))
    assert store.verify(KEYS[1], "weights") == ()
    assert list(store.objects.list(layout.GC_MARKS)) == []
    assert store.collect() == collection.Collected()


def test_an_object_younger_than_the_grace_period_stays(store: ArtifactStore, directory: Path) -> None:
    """It may be a publication's in progress, whose manifest is to come."""
    store.publish(directory, ingredients())
    store.delete(KEY, "graph")
    store.collect()
    store.collect()
    assert len(object_names(store)) == 2


def test_what_a_killed_writer_left_in_a_directory_goes_after_the_grace_period(
    directory: Path, tmp_path: Path, at: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    root = tmp_path / "store"
    store = ArtifactStore.open(root.as_uri())
    store.publish(directory, ingredients())
    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", killed)
        patch.setattr(Path, "unlink", lambda path, missing_ok: None)
        with pytest.raises(KeyboardInterrupt):
            store.objects.upload("objects/large", directory / "model.pt")
    left = {path.name for path in (root / ".work").iterdir()}
    assert len(left - {"lock"}) == 1
    assert store.collect() == collection.Collected()
    assert {path.name for path in (root / ".work").iterdir()} == left
    at(GRACE + 60)
    assert store.collect() == collection.Collected(1, 4)
    assert {path.name for path in (root / ".work").iterdir()} == {"lock"}
    assert store.verify(KEY, "graph") == ()


def test_a_publication_keeps_what_it_needs(store: ArtifactStore, directory: Path, at: Callable[[float], None]) -> None:
    store.publish(directory, ingredients())
    store.delete(KEY, "graph")
    at(GRACE + 60)
    assert store.collect().marked == 2
    store.publish(directory, ingredients(KEYS[1]))
    at(3 * GRACE)
    assert store.collect().deleted == 0
    at(9 * GRACE)
    store.collect()
    assert store.verify(KEYS[1], "graph") == ()


def test_a_collection_between_any_two_steps_of_a_publication_loses_nothing(
    directory: Path, tmp_path: Path, at: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are marked and due for deletion: a collector runs at each request that a publisher makes."""
    # Its clock is ahead, so what another thread is just writing would be old to it.
    monkeypatch.setattr(publication, "AT_ONCE", 1)
    for step in range(30):
        store = ArtifactStore.open(f"file://{tmp_path}/store-{step}")
        at(0)
        store.publish(directory, ingredients())
        store.delete(KEY, "graph")
        at(GRACE + 60)
        assert store.collect().marked == 2
        at(2 * GRACE + 120)
        interrupted = Interrupted(store.objects, step, store.collect)
        ArtifactStore(cast(ObjectStore, interrupted)).publish(directory, ingredients(KEYS[1]))
        assert store.verify(KEYS[1], "graph") == (), step
        store.collect()
        assert store.verify(KEYS[1], "graph") == (), step
        if interrupted.left >= 0:
            assert step > 5
            return
    pytest.fail("the publication has more steps than were tried")


class Interrupted:
    """Calls something just before one of the requests."""

    def __init__(self, objects: ObjectStore, step: int, call: Callable[[], object]) -> None:
        self._objects, self.left, self._call = objects, step, call

    def __getattr__(self, name: str) -> object:
        if name not in {"location", "uri"}:
            self.left -= 1
            if self.left == -1:
                self._call()
        return getattr(self._objects, name)


def test_a_publisher_waits_for_an_object_that_is_being_deleted(
    objects: ObjectStore, directory: Path, again: Callable[[], ObjectStore]
) -> None:
    """The collector has claimed it: what the publisher sees now will be gone in a moment."""
    digest = "d" * 64
    collector = Marks(again())
    collector.mark(digest, None)
    assert collector.claim(digest, collector.all()[digest])
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            collector.remove(digest)

    Marks(objects, sleep).keep(digest)
    assert len(waited) == 3


def test_a_collector_that_died_after_its_claim_does_not_stop_publishers_for_ever(
    objects: ObjectStore, again: Callable[[], ObjectStore]
) -> None:
    digest = "d" * 64
    dead = Marks(again())
    dead.mark(digest, None)
    assert dead.claim(digest, dead.all()[digest])
    waited: list[float] = []
    publisher = Marks(objects, waited.append)
    publisher.keep(digest)
    assert sum(waited) == 60
    assert publisher.state(digest) is MarkState.KEPT


def test_of_a_publisher_and_a_collector_only_one_gets_an_object(
    objects: ObjectStore, again: Callable[[], ObjectStore]
) -> None:
    digest = "d" * 64
    collector, publisher = Marks(objects), Marks(again())
    collector.mark(digest, None)
    seen = collector.all()[digest]
    publisher.keep(digest)
    assert not collector.claim(digest, seen)
    assert not collector.claim(digest, collector.all()[digest])


def test_of_two_collectors_one_gets_an_object(objects: ObjectStore, again: Callable[[], ObjectStore]) -> None:
    digest = "d" * 64
    first, second = Marks(objects), Marks(again())
    first.mark(digest, None)
    seen = second.all()[digest]
    assert first.claim(digest, first.all()[digest])
    assert not second.claim(digest, seen)


def test_after_a_long_upload_what_is_gone_is_uploaded_again(store: ArtifactStore, directory: Path) -> None:
    times = iter([0.0, GRACE])
    upload, uploaded = store.objects.upload, []

    def lossy(key: str, path: Path) -> None:
        uploaded.append(key)
        if len(uploaded) > 1:
            upload(key, path)

    store.objects.upload = lossy  # type: ignore[method-assign]
    publication.publish(store.objects, directory, ingredients(), clock=lambda: next(times))
    assert len(uploaded) == 3
    assert store.verify(KEY, "graph") == ()


def test_two_publishers_of_one_key_make_one_entry_with_all_its_objects(
    objects: ObjectStore, again: Callable[[], ObjectStore], tmp_path: Path
) -> None:
    """Compiles are not the same to the byte, so each brings objects of its own."""
    directories = [write_artifacts(tmp_path / f"machine-{number}") for number in range(4)]
    for number, directory in enumerate(directories):
        (directory / "model.pt").write_bytes(b"compile %d" % number * 1000)
    barrier = Barrier(len(directories))

    def publish(directory: Path) -> object:
        mine = ArtifactStore(again())
        barrier.wait(20)
        return mine.publish(directory, ingredients())

    with ThreadPoolExecutor(len(directories)) as pool:
        manifests = list(pool.map(publish, directories))
    store = ArtifactStore(objects)
    assert [store.find(KEY, "graph")] * 4 == manifests
    assert store.verify(KEY, "graph") == ()


def test_a_manifest_that_cannot_be_read_stops_a_collection(
    store: ArtifactStore, directory: Path, at: Callable[[float], None]
) -> None:
    """It is not known what it names: perhaps everything."""
    store.publish(directory, ingredients())
    store.delete(KEY, "graph")
    store.objects.put(layout.manifest_name("graph", KEYS[1]), b'{"schema": 2}')
    at(10 * GRACE)
    with pytest.raises(InvalidManifest):
        store.collect()
    assert len(object_names(store)) == 2
    store.delete(KEYS[1], "graph")
    assert store.collect().marked == 2


def test_without_conditional_writes_nothing_is_collected(
    store: ArtifactStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.objects.put
    monkeypatch.setattr(store.objects, "put", lambda key, body, **conditions: put(key, body))
    with pytest.raises(ConditionsIgnored):
        store.collect()
