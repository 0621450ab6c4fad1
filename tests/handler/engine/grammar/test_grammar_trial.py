"""A grammar that ends, stalls or fills the process that compiles it is told from one that compiles."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Never

import psutil
import pytest

import sample_model
from handler.engine.grammar import trial_lane
from handler.engine.grammar.grammar_trial import GrammarTrial
from handler.engine.grammar.trial_lane import TakesLonger
from handler.errors import GrammarNotTried

pytestmark = pytest.mark.engine

VOCABULARY = 1024
# A regular expression of this depth ends the process that compiles it by a segmentation fault.
DEEP = 100_000
# Takes minutes.
SLOW = "root ::= " + " ".join(['("a" | "ab" | "abc" | "abcd")?'] * 3000)


crashes = pytest.mark.skipif(
    not version("xgrammar").startswith("0.1."), reason="xgrammar 0.2 rejects a deep expression, where 0.1 crashes"
)


def problem_of(trial: GrammarTrial, kind: str, spec: str) -> str | None:
    """As the guard of an engine asks."""
    try:
        return trial.quick_problem(kind, spec)
    except TakesLonger:
        return trial.slow_problem(kind, spec)


@pytest.fixture(scope="module")
def trial() -> Iterator[GrammarTrial]:
    found = GrammarTrial(str(sample_model.path()), VOCABULARY)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("json", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),
        ("regex", "[a-z]+"),
        ("ebnf", 'root ::= "yes" | "no"'),
    ],
)
def test_what_compiles_has_no_problem(trial: GrammarTrial, kind: str, spec: str) -> None:
    assert problem_of(trial, kind, spec) is None


def test_what_cannot_be_parsed_is_a_problem(trial: GrammarTrial) -> None:
    for kind, spec in (("regex", "["), ("json", "{"), ("ebnf", "root ::= other")):
        problem = problem_of(trial, kind, spec)
        assert problem
        assert not problem.startswith("[")  # the library's time and place


def test_an_unknown_structural_tag_is_a_problem(trial: GrammarTrial) -> None:
    spec = json.dumps({"type": "structural_tag", "format": {"type": "no such format"}})
    problem = problem_of(trial, "structural_tag", spec)
    assert problem
    assert not problem.startswith("[")  # the library's time and place


def nested(depth: int) -> str:
    return "(" * depth + "a" + ")" * depth


def child_of(trial: GrammarTrial) -> psutil.Process:
    assert trial.quick.pid is not None
    return psutil.Process(trial.quick.pid)


@crashes
def test_one_that_ends_the_child_is_a_problem_and_another_child_tries_the_next(trial: GrammarTrial) -> None:
    assert problem_of(trial, "regex", "abc") is None
    first = trial.process.pid
    assert problem_of(trial, "regex", nested(DEEP)) == "the grammar library cannot compile it"
    assert str(problem_of(trial, "regex", "[a")).startswith("Regex parsing error")
    assert problem_of(trial, "regex", "abcd") is None
    assert trial.process.pid == first


@crashes
def test_the_core_has_more_of_a_stack_than_the_trial(trial: GrammarTrial) -> None:
    assert problem_of(trial, "regex", nested(1000)) is None
    assert problem_of(trial, "regex", nested(4000)) == "the grammar library cannot compile it"  # the core can


def test_the_end_of_a_child_that_has_tried_others_says_nothing_of_the_next(trial: GrammarTrial) -> None:
    assert problem_of(trial, "regex", "bc") is None
    first, child = trial.process.pid, child_of(trial)
    child.kill()
    assert problem_of(trial, "regex", "bcd") is None
    assert str(problem_of(trial, "regex", "[b")).startswith("Regex parsing error")
    assert trial.process.pid == first
    assert not child.is_running()


def test_one_whose_process_is_killed_may_come_again_and_the_next_is_tried(trial: GrammarTrial) -> None:
    assert problem_of(trial, "regex", "cd") is None
    first, child = trial.process.pid, child_of(trial)
    assert first is not None

    def kill() -> None:
        while trial.slow.pid is None:
            time.sleep(0.01)
        os.kill(first, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(GrammarNotTried):
        problem_of(trial, "ebnf", SLOW)
    killer.join()
    child.wait(60)  # it ends with its parent
    assert problem_of(trial, "regex", "cde") is None
    assert trial.process.pid != first


def test_the_message_has_no_place_in_the_library(trial: GrammarTrial) -> None:
    assert problem_of(trial, "structural_tag", '{"structures": []}') == "it has no 'triggers'"


def test_a_verdict_is_kept_without_a_process(trial: GrammarTrial) -> None:
    assert problem_of(trial, "regex", "kept") is None
    trial.process._end()
    assert problem_of(trial, "regex", "kept") is None
    assert trial.process.pid is None


def test_one_that_takes_too_long_is_a_problem_and_ends_its_child() -> None:
    quick = GrammarTrial(str(sample_model.path()), VOCABULARY, compile_seconds=1)
    try:
        assert problem_of(quick, "regex", "warm") is None
        child = child_of(quick)
        assert "longer than 1 s" in str(problem_of(quick, "ebnf", SLOW))
        assert not child.is_running()
        assert quick.slow.pid is None
        assert problem_of(quick, "regex", "after") is None
    finally:
        quick.close()


def test_one_that_takes_long_lets_the_others_pass(trial: GrammarTrial) -> None:
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(problem_of, trial, "ebnf", SLOW + ' | "long"')
        while trial.slow.pid is None and not slow.done():
            time.sleep(0.01)
        for word in ("one", "two", "three"):
            assert problem_of(trial, "regex", word) is None
        child = psutil.Process(trial.slow.pid)
        assert not slow.done()
        child.kill()
        with pytest.raises(GrammarNotTried):
            slow.result()


def test_one_that_gets_no_processor_time_may_come_again(trial: GrammarTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_of(trial, "regex", "warm") is None
    child = child_of(trial)
    child.suspend()
    with monkeypatch.context() as patched:
        patched.setattr(trial_lane, "WALL_SECONDS", 0.2)
        with pytest.raises(GrammarNotTried):
            problem_of(trial, "regex", "stalled")
    child.wait(60)
    assert trial.known("regex", "stalled") is None
    assert problem_of(trial, "regex", "stalled") is None


def test_where_no_process_starts_a_grammar_is_let_through() -> None:
    broken = GrammarTrial("/no/such/tokenizer", VOCABULARY)
    assert problem_of(broken, "regex", "[") is None
    assert broken.is_untried("regex", "[")


def test_what_keeps_a_child_from_being_made_says_nothing_about_a_grammar(
    trial: GrammarTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors(seconds: float) -> Never:
        raise OSError(errno.EMFILE, "Too many open files")

    trial.quick.close()
    with monkeypatch.context() as patched:
        patched.setattr(trial.process, "child", no_descriptors)
        with pytest.raises(GrammarNotTried):
            problem_of(trial, "regex", "honest")
    assert trial.known("regex", "honest") is None
    assert problem_of(trial, "regex", "honest") is None


def test_closing_ends_the_process() -> None:
    closed = GrammarTrial(str(sample_model.path()), VOCABULARY)
    problem_of(closed, "regex", "a")
    pid = closed.process.pid
    assert pid is not None
    closed.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert problem_of(closed, "regex", "b") is None
    assert closed.process.pid is None
