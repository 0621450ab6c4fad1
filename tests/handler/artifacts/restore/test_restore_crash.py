"""SIGKILL at any point, and several processes at once: the next start is right, and half a directory is never seen."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random

import pytest

from tests.handler.artifacts.dying import PATHS, restore_and_die, restore_quietly
from tests.handler.artifacts.restore_entry import Entry, make_entry, small_parts
from tests.handler.forks import processes_with

KILLS = 100


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    small_parts(monkeypatch)
    return make_entry(tmp_path / "store")


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    with processes_with("tests.handler.artifacts.dying") as context:
        yield context


def here(entry: Entry) -> Entry:
    """The entry as it is after a restore: with this machine's path inside."""
    config = json.loads(entry.contents["neuron_config.json"]) | {"_name_or_path": PATHS.model}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    return replace(entry, contents=entry.contents | {"neuron_config.json": text.encode()})


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_restore_killed_anywhere_is_gone_on_with(entry: Entry, processes: ForkServerContext, tmp_path: Path) -> None:
    expected = here(entry)
    random = Random(1)
    total = _told(processes, restore_and_die, entry, tmp_path / "counted" / "artifacts", -1)
    assert total > 60
    visible = fetched = 0
    for number in range(KILLS):
        target = tmp_path / str(number) / "artifacts"
        deaths = 1 + number % 2  # every other time the second attempt dies as well
        for _ in range(deaths):
            process = processes.Process(target=restore_and_die, args=(entry, target, random.randint(1, total)))
            process.start()
            process.join(60)
            assert process.exitcode in {-signal.SIGKILL, 0}  # a second attempt may have less to do than was counted
            if target.exists():
                visible += 1
                assert expected.is_restored(target), number
        fetched += _told(processes, restore_quietly, entry, target)
        assert expected.is_restored(target), number
        assert not list(target.parent.glob("*partial*")), number
    assert visible < KILLS
    assert fetched < KILLS * entry.size * 0.8, "what was there is not used"


def test_of_several_processes_one_fetches_and_the_others_find_it(
    entry: Entry, processes: ForkServerContext, tmp_path: Path
) -> None:
    target = tmp_path / "scratch" / "artifacts"
    results = processes.SimpleQueue()
    crowd = [processes.Process(target=restore_quietly, args=(entry, target, results.put)) for _ in range(4)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join(60)
    assert sorted(results.get() for _ in crowd) == [0, 0, 0, entry.size]
    assert here(entry).is_restored(target)


def _told(processes: ForkServerContext, function: Callable[..., None], *arguments: object) -> int:
    """The number that the function tells, in a process of its own."""
    results = processes.SimpleQueue()
    process = processes.Process(target=function, args=(*arguments, results.put))
    process.start()
    process.join(60)
    return int(results.get())
