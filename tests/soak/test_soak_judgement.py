"""What a soak calls wrong, and what it lets pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.soak.soak_requests import OURS, SoakRequest, wrong
from tests.soak.soak_result import Soak
from tests.soak.soak_state import Held
from tests.soak.soak_visit import WrongReply, check

IDLE = Held(0, 0, 0, 4, 100, 0, 40, 50, 80, 1000.0, 700.0, 2000.0, 1500.0, 7)


def soak(**end: Any) -> Soak:
    return Soak(IDLE, dataclasses.replace(IDLE, **end), Counter(), [], [(1.0, IDLE)], 16)


def test_the_same_as_before_is_no_leak_and_less_is_none_either() -> None:
    assert soak().violations() == []
    assert soak(threads=116, fds=39, http_rss=1100.0, http_own=740.0, core_rss=1900.0).violations() == []


@pytest.mark.parametrize(
    "end",
    [
        {"in_flight": 1},
        {"in_engine": 1},
        {"running": 1},
        {"tasks": 5},
        {"threads": 117},
        {"sockets": 1},
        {"fds": 41},
        {"core_threads": 51},
        {"core_fds": 81},
        {"http_rss": 1000.0, "http_own": 751.0},
        {"core_own": 1601.0},
    ],
)
def test_more_of_anything_is(end: dict[str, Any]) -> None:
    assert soak(**end).violations()


def test_a_wrong_reply_is() -> None:
    result = soak()
    result.wrong.append("500")
    assert result.violations() == ["500"]


@pytest.mark.parametrize(
    ("status", "body", "fine"),
    [
        (200, b"data: [DONE]\n\n", True),
        (200, b'data: {"error"', False),
        (503, b"data: [DONE]\n\n", False),
        (200, b"data: [DONE]\n\nTraceback (most recent call last):", False),
        (200, b"data: [DONE]\n\nTraceback.", True),
    ],
)
def test_a_reply_is_checked(status: int, body: bytes, fine: bool) -> None:
    asked = SoakRequest("a", "/", b"", mark=b"[DONE]")
    if fine:
        check(asked, status, body)
    else:
        with pytest.raises(WrongReply):
            check(asked, status, body)


def test_every_kind_is_made_whole_and_streamed_and_is_the_same_for_the_same_dice() -> None:
    made = [maker(Random(seed)) for maker in OURS for seed in range(40)]
    assert made == [maker(Random(seed)) for maker in OURS for seed in range(40)]
    kinds = {one.kind for one in made}
    assert {"chat, whole", "chat, streamed", "TGI, streamed", "serving classes, whole", "wrong bodies"} <= kinds
    assert wrong(Random(1)).statuses == range(400, 500)
