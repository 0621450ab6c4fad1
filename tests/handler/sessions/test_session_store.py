"""Sessions: begun, gone on with, closed, expired; never more than the bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handler.sessions.session_store import SessionNotFound, Sessions, TooManySessions


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_session_is_good_until_the_time_it_said(clock: Clock) -> None:
    sessions = Sessions(10, 60, clock)
    session = sessions.begin()
    assert session.header() == f"{session.identity}; Expires=1970-01-12T13:47:40Z"
    clock.now += 59
    assert sessions.check(session.identity) == session
    clock.now += 1
    with pytest.raises(SessionNotFound, match="has expired"):
        sessions.check(session.identity)
    assert len(sessions) == 0
    with pytest.raises(SessionNotFound, match="is not open"):
        sessions.check(session.identity)


def test_no_more_are_open_than_may_be_and_the_refused_are_told_when_one_expires(clock: Clock) -> None:
    sessions = Sessions(2, 60, clock)
    sessions.begin()
    clock.now += 20
    second = sessions.begin()
    with pytest.raises(TooManySessions, match="2 sessions are open") as caught:
        sessions.begin()
    assert caught.value.retry_after == 40
    clock.now += 40
    sessions.begin()
    sessions.close(second.identity)
    sessions.begin()
    assert len(sessions) == 2


def test_after_the_clock_has_stepped_back_an_expired_session_counts_no_more(clock: Clock) -> None:
    sessions = Sessions(2, 60, clock)
    sessions.begin()
    clock.now -= 1000
    sessions.begin()
    with pytest.raises(TooManySessions) as caught:
        sessions.begin()
    assert caught.value.retry_after == 60
    clock.now += 60
    assert len(sessions) == 1


def test_under_threads_the_bound_holds(clock: Clock) -> None:
    sessions = Sessions(50, 60, clock)

    def begin(_: int) -> str:
        try:
            return sessions.begin().identity
        except TooManySessions:
            return ""

    with ThreadPoolExecutor(8) as pool:
        found = [identity for identity in pool.map(begin, range(200)) if identity]
    assert len(set(found)) == len(sessions) == 50
