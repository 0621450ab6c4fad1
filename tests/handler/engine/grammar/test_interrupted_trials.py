"""A trial that ends for another reason than its grammar tells nothing of it, and a failed start is tried again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.engine.grammar import trial_lane
from handler.engine.grammar.grammar_trial import GrammarTrial
from handler.engine.grammar.trial_lane import UNREADABLE
from handler.errors import GrammarNotTried

# The process without the grammar library. A grammar is what the first trial of it does.
PROGRAM = """
import os, signal, socket, sys
from pathlib import Path
from handler.engine.grammar.trial_process import serve

begun = Path(sys.argv[1])
with (begun / "starts").open("a") as starts:
    starts.write("start ")
if (begun / "no memory").exists():
    sys.exit(1)

def tried(kind, spec):
    if spec == "bad":
        return "it is bad"
    marker = begun / spec
    if not marker.exists():
        marker.touch()
        exec(spec)

control = socket.socket(fileno=0)
control.sendall(b"ready")
serve(control, tried)
"""


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[GrammarTrial]:
    trial = GrammarTrial("no tokenizer", 10)
    trial.process._command = (sys.executable, "-c", PROGRAM, str(tmp_path))
    yield trial
    trial.close()
    trial.quick.close()


def starts(directory: Path) -> int:
    return len((directory / "starts").read_text().split())


@pytest.mark.parametrize("killed", ["os.getppid()", "os.getpid()"], ids=["the whole process", "its child"])
@pytest.mark.parametrize("number", ["signal.SIGKILL", "signal.SIGTERM"])
def test_a_kill_from_outside_is_not_blamed_on_the_grammar(trial: GrammarTrial, killed: str, number: str) -> None:
    grammar = f"os.kill({killed}, {number}); signal.pause()"
    with pytest.raises(GrammarNotTried):
        trial.quick_problem("json", grammar)
    assert trial.quick_problem("json", grammar) is None


def test_a_grammar_that_ends_its_child_is_rejected_for_good(trial: GrammarTrial) -> None:
    assert trial.quick_problem("json", "os._exit(1)") == UNREADABLE
    assert trial.quick_problem("json", "os._exit(1)") == UNREADABLE


def test_grammars_are_let_through_after_a_failed_start_and_tried_after_the_next(
    trial: GrammarTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no memory").touch()
    assert trial.quick_problem("json", "pass") is None
    assert trial.quick_problem("json", "None") is None
    assert starts(tmp_path) == 1, "no request waits for another start at once"
    assert trial.is_untried("json", "pass")
    (tmp_path / "no memory").unlink()
    monkeypatch.setattr(trial_lane, "RETRY_SECONDS", 0.0)
    assert trial.quick_problem("json", "bad") == "it is bad"
    assert trial.quick_problem("json", "1") is None
    assert not trial.is_untried("json", "1")
    assert starts(tmp_path) == 2
