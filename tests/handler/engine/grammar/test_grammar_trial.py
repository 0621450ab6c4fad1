"""A grammar that ends, stalls or fills the process that compiles it is told from one that compiles."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator

import psutil
import pytest

import sample_model
from handler.engine.grammar.grammar_trial import GrammarTrial, TrialUnavailable

pytestmark = pytest.mark.engine

VOCABULARY = 1024


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
    assert trial.problem(kind, spec) is None


def test_what_cannot_be_parsed_is_a_problem(trial: GrammarTrial) -> None:
    for kind, spec in (("regex", "["), ("json", "{"), ("ebnf", "root ::= other")):
        problem = trial.problem(kind, spec)
        assert problem
        assert not problem.startswith("[")  # the library's time and place


def test_an_unknown_structural_tag_is_a_problem(trial: GrammarTrial) -> None:
    spec = json.dumps({"type": "structural_tag", "format": {"type": "no such format"}})
    assert trial.problem("structural_tag", spec)


def once_asked(trial: GrammarTrial, kill: Callable[[], None]) -> threading.Thread:
    """Kills once the process has a grammar to read."""
    process = trial._process
    assert process is not None
    assert process.stdin is not None
    pipe = process.stdin.fileno()

    def wait() -> None:
        while not array("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]:
            time.sleep(0.01)
        kill()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_one_that_ends_the_child_is_a_problem_and_another_child_tries_the_next(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "abc") is None
    assert trial.pid is not None
    first, (child,) = trial.pid, psutil.Process(trial.pid).children()
    child.suspend()
    killer = once_asked(trial, child.kill)
    assert trial.problem("regex", "abcd") == "the grammar library cannot compile it"
    killer.join()
    assert trial.problem("regex", "abcde") is None
    assert trial.pid == first


def test_one_that_ends_the_whole_process_is_a_problem_and_the_next_is_tried_again(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "abc") is None
    assert trial.pid is not None
    first, (child,) = trial.pid, psutil.Process(trial.pid).children()
    child.suspend()
    killer = once_asked(trial, lambda: os.kill(first, signal.SIGKILL))
    assert trial.problem("regex", "bcd") == "the grammar library cannot compile it"
    killer.join()
    child.wait(10)  # it ends with its parent
    assert trial.problem("regex", "bcde") is None
    assert trial.pid != first


def test_the_message_has_no_place_in_the_library(trial: GrammarTrial) -> None:
    assert trial.problem("structural_tag", '{"structures": []}') == "it has no 'triggers'"
    unknown = json.dumps({"type": "structural_tag", "format": {"type": "no such format"}})
    assert not str(trial.problem("structural_tag", unknown)).startswith("[")


def test_a_verdict_is_kept_without_a_process(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "kept") is None
    trial._end()
    assert trial.problem("regex", "kept") is None
    assert trial._process is None


def test_one_that_takes_too_long_is_a_problem_and_ends_its_child() -> None:
    quick = GrammarTrial(str(sample_model.path()), VOCABULARY, compile_seconds=0.3)
    try:
        assert quick.problem("regex", "warm") is None
        assert quick.pid is not None
        (child,) = psutil.Process(quick.pid).children()
        assert "longer than 0.3 s" in str(quick.problem("ebnf", 'root ::= (("a"{1,1000}){1,1000}){1,1000}'))
        assert not child.is_running()
        assert quick.problem("regex", "after") is None
    finally:
        quick.close()


def test_one_that_gets_no_processor_time_may_come_again() -> None:
    quick = GrammarTrial(str(sample_model.path()), VOCABULARY, compile_seconds=0.05)
    try:
        assert quick.problem("regex", "warm") is None
        assert quick.pid is not None
        (child,) = psutil.Process(quick.pid).children()
        child.suspend()
        assert "again" in str(quick.problem("regex", "stalled"))
        child.wait(10)
        assert quick.known("regex", "stalled") == (False, None)
        assert quick.problem("regex", "stalled") is None
    finally:
        quick.close()


def test_where_no_process_starts_nothing_is_known() -> None:
    broken = GrammarTrial("/no/such/tokenizer", VOCABULARY)
    with pytest.raises(TrialUnavailable):
        broken.problem("regex", "a")


def test_closing_ends_the_process() -> None:
    closed = GrammarTrial(str(sample_model.path()), VOCABULARY)
    closed.problem("regex", "a")
    assert closed.pid is not None
    closed.close()
    with pytest.raises(ProcessLookupError):
        os.kill(closed.pid, 0)
    with pytest.raises(TrialUnavailable):
        closed.problem("regex", "b")
