"""Leases, over a directory and over S3 as moto's server speaks it."""

from __future__ import annotations

import msgspec
import pytest

from handler.artifacts.lease.compile_errors import LeaseLost
from handler.artifacts.lease.lease import SECONDS, Contender, Lease, LeaseState, read_record
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import StoreUnavailable
from tests.handler.artifacts.manual_time import ManualTime

NAME = "leases/graph/key"


def contender(objects: ObjectStore, time: ManualTime, machine: str = "") -> Contender:
    return Contender(objects, NAME, time, machine)


def taken(objects: ObjectStore, time: ManualTime) -> Lease:
    one = contender(objects, time)
    assert one.poll() is LeaseState.FREE
    lease = one.acquire()
    assert lease is not None
    return lease


class Failing:
    """An `ObjectStore` whose writes fail, before or after they are carried out, as long as `failing` says."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.failing = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self._objects, name)

    def put(self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        if self.failing == "before":
            raise StoreUnavailable(key, "test")
        etag = self._objects.put(key, body, if_absent=if_absent, if_match=if_match)
        if self.failing == "after":
            raise StoreUnavailable(key, "test")
        return etag


def test_one_holds_it_and_the_other_sees_that(objects: ObjectStore, time: ManualTime) -> None:
    first, second = contender(objects, time, "trn1 host-1"), contender(objects, time)
    assert first.poll() is second.poll() is LeaseState.FREE
    lease = first.acquire()
    assert lease is not None
    assert lease.held
    assert second.acquire() is None
    assert second.poll() is LeaseState.HELD
    assert second.record is not None
    assert second.record.machine == "trn1 host-1"


def test_it_expires_only_when_it_was_watched_for_its_whole_duration(objects: ObjectStore, time: ManualTime) -> None:
    taken(objects, time)
    time.seconds += 10 * SECONDS  # long dead, but a new watcher cannot know: no clocks are compared
    watcher = contender(objects, time)
    assert watcher.poll() is LeaseState.HELD
    time.seconds += SECONDS - 1
    assert watcher.poll() is LeaseState.HELD
    time.seconds += 1
    assert watcher.poll() is LeaseState.EXPIRED
    successor = watcher.acquire()
    assert successor is not None
    assert successor.fencing == 2


def test_renewed_it_does_not_expire(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    lease.keep()
    watcher = contender(objects, time)
    for _ in range(12):
        assert watcher.poll() is LeaseState.HELD
        time.seconds += SECONDS / 3
        time.tick()
        assert lease.held


def test_a_holder_stops_believing_before_anybody_may_take_it(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    watcher = contender(objects, time)
    watcher.poll()
    time.seconds += SECONDS * 0.91
    assert not lease.held
    assert watcher.poll() is LeaseState.HELD


def test_a_thief_is_noticed_and_nothing_is_written_over_it(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    told: list[str] = []
    lease.keep(lambda: told.append("lost"))
    watcher = contender(objects, time)
    watcher.poll()
    time.seconds += SECONDS
    watcher.poll()
    thief = watcher.acquire()
    assert thief is not None
    body, _ = objects.get(NAME)
    time.tick()
    assert told == ["lost"]
    assert not lease.held
    with pytest.raises(LeaseLost, match="another instance has it"):
        lease.confirm()
    lease.release()
    assert objects.get(NAME)[0] == body
    thief.confirm()


def test_a_watcher_that_is_late_does_not_steal_a_renewed_one(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    lease.keep()
    watcher = contender(objects, time)
    watcher.poll()
    time.seconds += SECONDS
    assert watcher.poll() is LeaseState.EXPIRED
    time.tick()
    assert watcher.acquire() is None
    assert lease.held


def test_a_store_that_is_away_for_a_while_is_survived(objects: ObjectStore, time: ManualTime) -> None:
    store = Failing(objects)
    lease = taken(store, time)  # type: ignore[arg-type]
    lease.keep()
    store.failing = "before"
    time.seconds += SECONDS
    time.tick()
    assert not lease.held
    with pytest.raises(LeaseLost, match="could not be renewed in time"):
        lease.confirm()
    store.failing = ""
    lease.confirm()  # nobody has taken it meanwhile
    assert lease.held


def test_a_renewal_whose_answer_was_lost_is_no_theft(objects: ObjectStore, time: ManualTime) -> None:
    store = Failing(objects)
    lease = taken(store, time)  # type: ignore[arg-type]
    lease.keep()
    store.failing = "after"
    time.seconds += SECONDS / 3
    time.tick()
    store.failing = ""
    time.seconds += SECONDS / 3
    time.tick()
    assert lease.held
    time.seconds += SECONDS / 2
    assert lease.held


def test_released_it_is_free_at_once_and_the_number_grows(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    lease.keep()
    lease.release()
    assert not time.renews
    second = taken(objects, time)
    assert (lease.fencing, second.fencing) == (1, 2)


def test_no_renewals_after_its_end(objects: ObjectStore, time: ManualTime) -> None:
    lease = taken(objects, time)
    lease.keep(deadline=time.now() + 10)
    before = objects.get(NAME)
    time.seconds += 11
    time.tick()
    assert objects.get(NAME) == before
    time.seconds += SECONDS
    lease.confirm()  # nobody has taken it
    assert lease.held


def test_an_object_that_is_no_lease_expires_like_one(objects: ObjectStore, time: ManualTime) -> None:
    objects.put(NAME, b'{"seconds": "x"')
    watcher = contender(objects, time)
    assert watcher.poll() is LeaseState.HELD
    time.seconds += SECONDS
    assert watcher.poll() is LeaseState.EXPIRED
    assert watcher.acquire() is not None


@pytest.mark.parametrize("number", [2**64 - 1, -1])
@pytest.mark.parametrize("name", ["fencing", "renewals"])
def test_a_record_with_a_number_that_cannot_grow_is_one_that_cannot_be_read(name: str, number: int) -> None:
    whole = msgspec.to_builtins(read_record(b"", 30.0))
    assert read_record(msgspec.json.encode({**whole, "machine": "m", name: number}), 30.0).machine == "unknown"
