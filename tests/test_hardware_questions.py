"""The script with the questions that only a Neuron device settles (docs/on-neuron.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = "tests/on_neuron/hardware_questions.py"


@pytest.mark.skipif(any(Path("/dev").glob("neuron[0-9]*")), reason="there is a device: the questions take hours")
@pytest.mark.parametrize(("words", "count"), [((), 8), (("--only", "2,7"), 2)])
def test_without_a_device_each_question_says_so(words: tuple[str, ...], count: int) -> None:
    command = [sys.executable, "-I", SCRIPT, "/models/x", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    rows = [line for line in done.stdout.splitlines() if re.match(r"\| \d\. ", line)]
    assert len(rows) == count
    assert all(row.endswith("| no device |") for row in rows)


def test_the_documents_table_has_the_scripts_questions() -> None:
    source = (ROOT / SCRIPT).read_text()
    questions = re.findall(r'^    \("(.+\?)", \w+\),$', source, re.MULTILINE)
    documented = (ROOT / "docs/on-neuron.md").read_text()
    assert len(questions) == 8
    assert [question for question in questions if f"| {question} |" not in documented] == []
