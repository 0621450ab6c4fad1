from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handler.errors import TooManyRequests
from handler.startup.admission import Admission
from tests.handler.waiting import WITHIN


def test_one_more_than_the_limit_is_refused_until_a_place_is_left() -> None:
    admission = Admission(2)
    admission.enter()
    admission.enter()
    with pytest.raises(TooManyRequests) as caught:
        admission.enter()
    assert caught.value.status == 429
    assert "2 requests" in caught.value.message
    assert admission.count == 2
    admission.leave()
    admission.enter()


def test_a_place_is_left_whatever_happens_inside() -> None:
    admission = Admission(1)
    counts: list[int] = []

    def request() -> None:
        with admission:
            counts.append(admission.count)
            raise KeyError

    with pytest.raises(KeyError):
        request()
    assert counts == [1]
    assert admission.count == 0


def test_waiting_for_nobody_is_over_at_once() -> None:
    assert Admission(1).wait_empty(0) is True


def test_waiting_gives_up_while_someone_is_there() -> None:
    admission = Admission(1)
    admission.enter()
    assert admission.wait_empty(0.01) is False


def test_waiting_ends_with_the_last_one_and_not_before() -> None:
    admission = Admission(2)
    admission.enter()
    admission.enter()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(admission.wait_empty, WITHIN) for _ in range(2)]
        admission.leave()
        assert not any(future.done() for future in waiting)
        admission.leave()
        assert [future.result(WITHIN) for future in waiting] == [True, True]


def test_a_refused_client_is_told_when_there_should_be_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("handler.startup.admission.time.monotonic", lambda: now)
    admission = Admission(16)
    assert admission.retry_after == 1, "nothing is known yet"
    for _ in range(16):
        admission.enter()
    for _ in range(8):
        now += 4.0
        admission.leave()
        admission.enter()
    with pytest.raises(TooManyRequests, match="try again in 8 s") as caught:
        admission.enter()
    assert caught.value.retry_after == 8, "a place every 4 s, and two of the 16 should be free"
    for _ in range(200):
        now += 1000.0
        admission.leave()
        admission.enter()
    assert admission.retry_after == 30
