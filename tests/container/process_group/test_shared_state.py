"""What several processes count together: exact under contention, and right again after one was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from container.process_group.shared_admission import SharedAdmission
from container.process_group.shared_state import Leader, Member, SharedState
from handler.errors import TooManyRequests


def forked(work: Callable[[], int]) -> int:
    """Runs `work`, which returns an exit status, in a process that inherits the shared state. Returns its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        status = work()
    finally:
        os._exit(status)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_limit_is_exact_over_processes() -> None:
    shared_state = SharedState(4)
    shared_state.max_in_flight = 50

    def take(slot: int) -> int:
        admission, taken = SharedAdmission(shared_state, slot), 0
        for _ in range(60):
            try:
                admission.enter()
                taken += 1
            except TooManyRequests:
                continue
        return taken

    taken = [status_of(pid) for pid in [forked(lambda slot=slot: take(slot)) for slot in (1, 2, 3)]]  # type: ignore[misc]
    assert sum(taken) == 50 == shared_state.in_flight()
    one = SharedAdmission(shared_state, 0)
    assert one.total == 50
    assert one.count == 0
    with pytest.raises(TooManyRequests, match="50 requests"):
        one.enter()


def test_a_killed_process_gives_back_its_places_and_locks_nobody_out() -> None:
    shared_state = SharedState(3)
    shared_state.max_in_flight = 8

    def hold() -> int:
        while True:  # in and out of the lock all the time
            shared_state.enter(1)
            shared_state.leave(1)

    pid = forked(hold)
    for _ in range(200):
        assert shared_state.enter(2)
        shared_state.leave(2)
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL
    assert shared_state.in_flight() in (0, 1)
    shared_state.clear(1)  # returns: who ended holds no lock
    assert shared_state.in_flight() == 0
    assert shared_state.member(1) is Member.RELEASED


def test_who_has_more_connections_than_another_is_told() -> None:
    shared_state = SharedState(4)
    assert shared_state.fewest_connections(1) is None
    for slot, connections in ((1, 5), (2, 3), (3, 0)):
        shared_state.set_connections(slot, connections)
    shared_state.set_member(1, Member.SERVING)
    assert shared_state.fewest_connections(1) is None
    shared_state.set_member(2, Member.SERVING)  # the third does not serve: it counts for nothing
    assert (shared_state.fewest_connections(1), shared_state.fewest_connections(2)) == (3, 5)


def test_a_slot_is_given_once_and_the_state_says_when_there_is_none() -> None:
    shared_state = SharedState(4)
    assert [shared_state.take_slot() for _ in range(3)] == [1, 2, 3]
    shared_state.set_member(2, Member.GONE)
    shared_state.clear(2)
    assert not shared_state.full
    assert shared_state.take_slot() is None
    assert shared_state.full
    assert shared_state.members(Member.STARTING) == [1, 3]


def test_a_reason_is_read_by_all_and_cut_where_it_is_too_long() -> None:
    shared_state = SharedState(2)
    assert shared_state.leader is Leader.STARTING
    assert shared_state.reason == ""

    def fail() -> int:
        shared_state.reason = "no devices " + "x" * 5000
        shared_state.leader = Leader.FAILED
        return 0

    assert status_of(forked(fail)) == 0
    assert shared_state.leader is Leader.FAILED
    assert shared_state.reason.startswith("no devices ")
    assert len(shared_state.reason) < 1024
    shared_state.reason = "short"
    assert shared_state.reason == "short"
