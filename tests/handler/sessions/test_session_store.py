"""Sessions: begun, gone on with, closed, expired; never more than the bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from handler.sessions.session_errors import SessionNotFound, TooManySessions
from handler.sessions.session_store import Sessions, SharedSessions

Make = Callable[[int, float, Callable[[], float]], Sessions]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["one process", "several"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes what a process keeps its sessions in; made twice, it is that of two processes."""
    if request.param == "one process":
        return Sessions
    return lambda limit, lifetime, clock: SharedSessions(tmp_path / "sessions", limit, lifetime, clock)


def test_a_session_is_good_until_the_time_it_said(clock: Clock, made: Make) -> None:
    sessions = made(10, 60, clock)
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


def test_a_closed_session_is_gone(clock: Clock, made: Make) -> None:
    sessions = made(10, 60, clock)
    session = sessions.begin()
    sessions.close(session.identity)
    for act in (sessions.check, sessions.close):
        with pytest.raises(SessionNotFound):
            act(session.identity)


def test_no_more_are_open_than_may_be_and_the_refused_are_told_when_one_expires(clock: Clock, made: Make) -> None:
    sessions = made(2, 60, clock)
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


def test_under_threads_the_bound_holds(clock: Clock, made: Make) -> None:
    sessions = made(50, 60, clock)

    def begin(_: int) -> str:
        try:
            return sessions.begin().identity
        except TooManySessions:
            return ""

    with ThreadPoolExecutor(8) as pool:
        found = [identity for identity in pool.map(begin, range(200)) if identity]
    assert len(set(found)) == len(sessions) == 50


def _begin_many(file: str) -> list[str]:
    sessions, found = SharedSessions(Path(file), 50, 60, time.time), []
    for _ in range(40):
        try:
            found.append(sessions.begin().identity)
        except TooManySessions:
            continue
    return found


def test_what_one_process_begins_the_others_know_and_the_bound_is_theirs_together(tmp_path: Path) -> None:
    file = os.fspath(tmp_path / "sessions")
    with ProcessPoolExecutor(3) as pool:
        found = [identity for begun in pool.map(_begin_many, [file] * 3) for identity in begun]
    sessions = SharedSessions(Path(file), 50, 60, time.time)
    assert len(found) == len(set(found)) == len(sessions) == 50
    for identity in found:
        assert sessions.check(identity).identity == identity
    sessions.close(found[0])
    with pytest.raises(SessionNotFound):
        SharedSessions(Path(file), 50, 60, time.time).check(found[0])
