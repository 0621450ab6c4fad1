"""A grammar that ends, stalls or fills the process that compiles it is told from one that compiles."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator

import pytest

import sample_model
from handler.engine.grammar.grammar_trial import GrammarTrial, TrialUnavailable

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


def test_what_cannot_be_parsed_is_left_to_the_engine_s_own_words(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "[") is None


def test_an_unknown_structural_tag_is_a_problem(trial: GrammarTrial) -> None:
    spec = json.dumps({"type": "structural_tag", "format": {"type": "no such format"}})
    assert trial.problem("structural_tag", spec)


def test_one_that_ends_the_process_is_a_problem_and_the_next_is_tried_again(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "abc") is None
    assert trial.pid is not None
    first = trial.pid
    os.kill(first, signal.SIGSTOP)
    killer = threading.Timer(0.1, os.kill, (first, signal.SIGKILL))
    killer.start()
    assert trial.problem("regex", "abcd") == "the grammar library cannot compile it"
    killer.join()
    assert trial.problem("regex", "abcde") is None
    assert trial.pid != first


def test_a_verdict_is_kept_without_a_process(trial: GrammarTrial) -> None:
    assert trial.problem("regex", "kept") is None
    trial._end()
    assert trial.problem("regex", "kept") is None
    assert trial._process is None


def test_one_that_takes_too_long_is_a_problem_and_leaves_no_process() -> None:
    quick = GrammarTrial(str(sample_model.path()), VOCABULARY, compile_seconds=0.3)
    try:
        assert quick.problem("regex", "warm") is None
        assert quick.pid is not None
        os.kill(quick.pid, signal.SIGSTOP)
        assert "longer than 0.3 s" in str(quick.problem("regex", "stalled"))
        with pytest.raises(ProcessLookupError):
            os.kill(quick.pid, 0)
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
