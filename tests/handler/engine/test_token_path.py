"""Tokens that wait together are pushed together, whole and in order; one that comes alone is pushed alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sample_model
from tests.installed_vllm import has_token_path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not has_token_path(), reason="this vLLM has no direct token path"),
]
PROGRAM = Path(__file__).with_name("token_path_program.py")
TEXT = "What does /ping mean? It says whether the endpoint is able to answer now."
KINDS = ("plain", "apart", "whole", "stops")


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[3]), "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [sys.executable, str(PROGRAM), str(sample_model.path())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", ["behind", "in time"])
def test_every_token_once_and_in_order(told: dict[str, Any], story: str, kind: str) -> None:
    heard = told[story][kind]
    assert "".join(text for text, _, _ in heard["pushes"]) == TEXT
    assert [token for _, ids, _ in heard["pushes"] for token in ids] == told["ids"]
    assert [finish for _, _, finish in heard["pushes"]] == [None] * (len(heard["pushes"]) - 1) + ["length"]
    assert not heard["failed"]


@pytest.mark.parametrize("kind", ["plain", "stops"])
def test_what_waits_goes_together(told: dict[str, Any], kind: str) -> None:
    assert len(told["behind"][kind]["pushes"]) < len(told["ids"]) / 4


def test_a_reply_that_shows_each_token_gets_each_by_itself(told: dict[str, Any]) -> None:
    assert [len(ids) for _, ids, _ in told["behind"]["apart"]["pushes"]] == [1] * len(told["ids"])


@pytest.mark.parametrize("kind", ["plain", "apart", "stops"])
def test_a_token_that_comes_alone_waits_for_none(told: dict[str, Any], kind: str) -> None:
    assert [len(ids) for _, ids, _ in told["in time"][kind]["pushes"]] == [1] * len(told["ids"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_came_before_the_cores_death_is_pushed_before_the_error(told: dict[str, Any], kind: str) -> None:
    heard = told["dead"][kind]
    expected = [] if kind == "whole" else told["ids"][:3]
    assert [token for _, ids, _ in heard["pushes"] for token in ids] == expected
    assert heard["failed"]


def test_who_waits_for_an_answer_of_the_core_hears_of_its_death(told: dict[str, Any]) -> None:
    """As a start that loads an adapter."""
    assert told["waited for"] == "EngineDeadError"


def test_every_gap_between_tokens_is_counted(told: dict[str, Any]) -> None:
    gaps = (len(told["ids"]) - 1) * len(KINDS)
    assert [told["behind"]["gaps"], told["in time"]["gaps"], told["dead"]["gaps"]] == [gaps, gaps, 2 * len(KINDS)]


def test_the_statistics_of_several_steps_are_recorded_together_and_none_is_lost(told: dict[str, Any]) -> None:
    counted = told["counted"]
    assert counted["unread"] == 0
    assert counted["together"] == [{"waiting": 4, "queries": 15, "hits": 6, "tokens": 7, "ended": 1}]
    assert (counted["at once"], counted["in time"]) == ([7, 8], 9)


def test_a_process_without_the_first_core_has_the_tokens_and_gaps_of_its_own(told: dict[str, Any]) -> None:
    elsewhere = told["elsewhere"]
    assert ([token for _, ids, _ in elsewhere["plain"]["pushes"] for token in ids], elsewhere["gaps"]) == (
        told["ids"][:3],
        2,
    )


def test_the_size_of_each_step_is_counted(told: dict[str, Any]) -> None:
    within = told["counted"]["sizes"]
    assert within["1.0"] == 1, "only the last step has one token"
    assert within["2.0"] >= 3, "those before have two; 0.16 counts the tokens of both prompts, too"
    assert within["8.0"] == within["+Inf"] == 4


def test_a_request_goes_when_the_one_before_it_has_its_first_token_and_is_counted_as_waiting_until_then(
    told: dict[str, Any],
) -> None:
    assert told["paced"] == {"waiting": [0, 6, 5], "second": [False, True]}


@pytest.mark.parametrize("kind", ["registered first", "one by one"])
def test_the_sequences_of_a_request_enter_as_it_has_slots_and_those_outside_leave_with_it(
    told: dict[str, Any], kind: str
) -> None:
    assert told["several"][kind] == [[0, 1], [1, 2], 0, 3, 0]


def test_a_grammar_that_no_token_fits_is_the_clients_fault(told: dict[str, Any]) -> None:
    heard = told["rejected"]
    assert (heard["grammar"]["pushes"], heard["grammar"]["failed"]) == ([], True)
    for name in ("not compiled", "plain"):
        assert [finish for _, _, finish in heard[name]["pushes"]] == ["error"], "as any end that no client caused"
        assert not heard[name]["failed"]
    assert heard["ended"] == ["grammar", "not compiled", "plain"], "vLLM's client of several cores hears who has ended"


def test_a_stop_string_within_a_step_ends_a_request_as_vllm_ends_its_own(told: dict[str, Any]) -> None:
    heard = told["stopped"]
    assert heard["sink"] == heard["own"]
    assert heard["sink"][0][0] == "What does "
    assert heard["aborted"] == ["own", "sink"]
