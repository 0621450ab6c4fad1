"""Whatever a document calls working is started, and answers.

`make test` starts a tenth of those of its vLLM, chosen by a seed (STARTS_SEED). `make test-starts` starts everything
(STARTS=all) and writes `record.json`, from which docs/guides.md has its numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.installed_vllm import version
from tests.lines.test_served_lines import LINES
from tests.starts.start_list import ENGINES, RECORD, Start, recorded, starts
from tests.starts.start_run import StartRunner

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]
EVERYTHING = os.environ.get("STARTS") == "all"
# The tutorial's second example, which had passed `check` for months and did not start.
ALWAYS = "recipe llama-3.1-405b-eagle-trn2.48xlarge"
SEED = os.environ.get("STARTS_SEED", "36")


def chosen() -> list[Start]:
    """Those of the installed vLLM. One after the other have the same engine, so that it is imported once for each."""

    def place(start: Start) -> str:
        return hashlib.sha256(f"{SEED} {start.number}".encode()).hexdigest()

    own = [line.line for line in LINES] or [line for line, (_, vllm) in ENGINES.items() if vllm in ("", version())]
    ordered = sorted((start for start in starts() if start.line in own), key=place)
    tenth = ordered[: max(2, len(ordered) // 10)]
    some = [start for start in ordered if EVERYTHING or start in tenth or start.number == ALWAYS]
    return sorted(some, key=lambda start: (str(ENGINES.get(start.line, start.line)), start.number))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> StartRunner:
    return StartRunner(tmp_path_factory.mktemp("starts"))


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, Any]]:
    """Gets what came of each start: an entry, or None before it has answered. With STARTS=all it is written at the end.

    What this run has left out (`-k`) keeps its entry.
    """
    found: dict[str, Any] = {}
    yield found
    if EVERYTHING:
        kept = {start.settings: recorded().get(start.settings) for start in starts()} | found
        ordered = sorted(((key, made) for key, made in kept.items() if made), key=lambda item: item[1]["number"])
        lines = ",\n".join(f' "{key}": {json.dumps(made)}' for key, made in ordered)
        RECORD.write_text(f'{{"starts": {{\n{lines}\n}}}}\n', encoding="utf-8")


@pytest.mark.parametrize("start", chosen(), ids=lambda start: start.number)
def test_it_starts_and_answers(start: Start, runner: StartRunner, record: dict[str, Any]) -> None:
    record[start.settings] = None
    run = runner.run(start)
    answer = run.answer
    assert answer.get("state") == "ready", f"{answer}\n{run.log[-4000:]}"
    assert answer["line"] == start.line
    replies = [answer["greedy"], answer["sampled"], *answer["requests"]]
    assert len(answer["requests"]) == len(start.requests)
    assert all(reply["tokens"] > 0 and reply["finish"] == "length" for reply in replies), answer
    tokens = [reply["tokens"] for reply in replies]
    record[start.settings] = {"number": start.number, "line": start.line, "tokens": tokens}
