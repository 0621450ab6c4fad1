"""Which bodies are refused after the engine has died, and for how long."""

from __future__ import annotations

import time

import pytest

from container.recovery import death_log
from container.recovery.death_log import (
    REFUSED,
    WINDOW,
    DeathLog,
    Presence,
    digest_of,
    explained,
    failures,
    refusals,
    suspects,
)
from container.recovery.recovery import Recovery, fields_of
from container.requests.request_record import RequestRecord
from handler.errors import BodyQuarantined

BODY, NOW = b'{"prompt": "poison"}', 10_000.0


def there(life: float, at: float, name: str = "one", *, alone: bool = False) -> Presence:
    return Presence(digest_of(BODY), name, life, at, alone)


@pytest.mark.parametrize(
    ("presences", "until"),
    [
        ([there(1, NOW - 9), there(2, NOW - 9), there(3, NOW - 1)], None),  # a bystander, however often
        ([there(1, NOW - 90), there(2, NOW - 9, alone=True)], NOW - 9 + REFUSED),
        ([there(1, NOW - 90 - REFUSED), there(2, NOW - REFUSED, alone=True)], None),
    ],
)
def test_a_body_is_refused_for_a_time_after_the_engine_has_died_of_it_alone(
    presences: list[Presence], until: float | None
) -> None:
    refused = refusals(presences, NOW)
    assert (refused[digest_of(BODY)].until if refused else None) == until


def test_the_deaths_that_a_convicted_body_explains_are_those_at_which_it_was_there() -> None:
    bystander = Presence(digest_of(b"honest"), "other", 3, NOW)
    presences = [there(1, NOW - 90), there(2, NOW - 9, alone=True), bystander]
    assert explained(presences) == {1, 2}
    assert explained([there(1, NOW - 90), bystander]) == set()


@pytest.mark.parametrize(
    ("lives", "explained_by", "count"),
    [
        ([], [], 0),
        ([NOW - 60], [], 1),
        ([NOW - 9000], [], 1),  # it served for long, and ends now
        ([NOW - 9000, NOW - 4000, NOW - 20], [], 2),  # the first one ended more than an hour ago
        ([NOW - 9000, NOW - 3000, NOW - 2000, NOW - 20], [], 4),
        ([NOW - 90, NOW - 20], [there(NOW - 90, NOW - 20, alone=True)], 1),
    ],
)
def test_a_failure_counts_for_an_hour_from_the_end_of_its_engine(
    lives: list[float], explained_by: list[Presence], count: int
) -> None:
    assert failures(lives, explained_by, NOW) == count


def test_whoever_was_there_is_suspected_until_it_has_been_tried() -> None:
    deaths = DeathLog()
    deaths.add(there(1.0, time.monotonic() - WINDOW - 1))
    assert not suspects(deaths.read(), time.monotonic())
    deaths.add(there(1.0, time.monotonic() - 1))
    recovery, record = Recovery(deaths=deaths), RequestRecord({})
    recovery.keep(record, BODY)
    assert recovery.suspected(record)
    recovery.tried(record, died=False)
    assert not recovery.suspected(record)
    other = RequestRecord({})
    recovery.keep(other, b'{"prompt": "honest"}')
    assert not recovery.suspected(other)


def test_the_log_is_kept_over_lives_and_forgets_what_is_old() -> None:
    deaths = DeathLog()
    for at in (1.0, 2.0, 3.0):
        deaths.add(there(at, at))
    deaths.forget(2.0)
    deaths.add(there(4.0, 4.0))
    assert [presence.at for presence in deaths.read()] == [2.0, 3.0, 4.0]


def test_a_refused_body_gets_an_error_that_says_for_how_long_and_others_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deaths, now = DeathLog(), time.monotonic()
    deaths.add(there(1.0, now - 2, "first-id"))
    deaths.add(there(2.0, now - 1, "second-id", alone=True))
    with caplog.at_level("INFO"):
        recovery = Recovery(deaths=deaths)
    recovery.keep(RequestRecord({}), b'{"prompt": "honest"}')
    with pytest.raises(BodyQuarantined, match="change the request") as caught:
        recovery.keep(RequestRecord({}), BODY)
    assert 0 < caught.value.retry_after <= REFUSED
    assert "first-id, second-id" in caplog.text
    assert "poison" not in caplog.text + caught.value.message


def test_names_of_fields_are_logged_unless_they_look_like_text() -> None:
    assert fields_of(b'{"prompt": "a", "my secret": 1, "' + b"x" * 41 + b'": 2, "max_tokens": 3}') == [
        "max_tokens",
        "prompt",
    ]
    assert fields_of(b'{"a": 1}\n{"a": 2}') == []


def test_deaths_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(death_log, "LARGEST", 1000)
    deaths = DeathLog()
    for life in range(50):
        deaths.add(there(life, NOW))
    assert len(deaths.read()) == 8
