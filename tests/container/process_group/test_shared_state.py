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
    """Runs work in a process that inherits the board, as gunicorn's do; its id. `work` returns an exit status."""
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
    board = SharedState(4)
    board.places = 50

    def take(seat: int) -> int:
        admission, taken = SharedAdmission(board, seat), 0
        for _ in range(60):
            try:
                admission.enter()
                taken += 1
            except TooManyRequests:
                continue
        return taken

    taken = [status_of(pid) for pid in [forked(lambda seat=seat: take(seat)) for seat in (1, 2, 3)]]  # type: ignore[misc]
    assert sum(taken) == 50 == board.in_flight()
    one = SharedAdmission(board, 0)
    assert one.total == 50
    assert one.count == 0
    with pytest.raises(TooManyRequests, match="50 requests"):
        one.enter()


def test_a_killed_process_gives_back_its_places_and_locks_nobody_out() -> None:
    board = SharedState(3)
    board.places = 8

    def hold() -> int:
        while True:  # in and out of the lock all the time
            board.enter(1)
            board.leave(1)

    pid = forked(hold)
    for _ in range(200):
        assert board.enter(2)
        board.leave(2)
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL
    assert board.in_flight() in (0, 1)
    board.clear(1)  # returns: who ended holds no lock
    assert board.in_flight() == 0
    assert board.member(1) is Member.RELEASED


def test_who_has_more_connections_than_another_is_told() -> None:
    board = SharedState(4)
    assert board.fewest_connections(1) is None
    for seat, connections in ((1, 5), (2, 3), (3, 0)):
        board.note_connections(seat, connections)
    board.set_member(1, Member.SERVING)
    assert board.fewest_connections(1) is None
    board.set_member(2, Member.SERVING)  # the third does not serve: it counts for nothing
    assert (board.fewest_connections(1), board.fewest_connections(2)) == (3, 5)


def test_a_seat_is_given_once_and_the_board_says_when_there_is_none() -> None:
    board = SharedState(4)
    assert [board.take_seat() for _ in range(3)] == [1, 2, 3]
    board.set_member(2, Member.GONE)
    board.clear(2)
    assert not board.full
    assert board.take_seat() is None
    assert board.full
    assert board.members(Member.STARTING) == [1, 3]


def test_a_reason_is_read_by_all_and_cut_where_it_is_too_long() -> None:
    board = SharedState(2)
    assert board.leader is Leader.STARTING
    assert board.reason == ""

    def fail() -> int:
        board.reason = "no devices " + "x" * 5000
        board.leader = Leader.FAILED
        return 0

    assert status_of(forked(fail)) == 0
    assert board.leader is Leader.FAILED
    assert board.reason.startswith("no devices ")
    assert len(board.reason) < 1024
    board.reason = "short"
    assert board.reason == "short"
