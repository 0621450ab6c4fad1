"""What `check` accepts starts and answers as the intact model does; what it refuses does not start or answers wrongly.

Seeded faults of the directories of four tiny models, judged by vLLM's CPU engine. `MODEL_FAULTS=200` runs all that the
note counts; CI runs 20.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handler.config.loading.config_loader import load
from handler.neuron.checkpoint.file_findings import NO_TEMPLATE
from handler.neuron.planning.examination import Examination, examine_config
from handler.neuron.planning.file_examination import with_files
from tests.handler.neuron.checkpoint.tiny_models import FAULTS, SHAPES, write_model

pytestmark = [pytest.mark.engine, pytest.mark.vllm_016("the table of names is that of vLLM 0.16")]
CASES = int(os.environ.get("MODEL_FAULTS", "20"))
SEED = int(os.environ.get("SEED", "36"))
NAMES = [name for name in SHAPES if name != "other"]
SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
# vLLM cuts off what a fused projection has too many rows of, and answers as before. `check` refuses such a file.
CUT_OFF = re.compile(r"\b(q|k|v|gate|up)_proj\.(weight|bias) a row more$")


class Judge:
    """The engine, in a process that has imported vLLM."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("engine_judge.py")
        environment = {**os.environ, **SETTINGS, "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def answers(self, examination: Examination, model: Path) -> dict[str, Any]:
        """The answers of an engine with the plan; without one, with the model alone."""
        plan = examination.plan
        args = {"model": str(model)} if plan is None else {**plan.engine_args}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"args": args}) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    judge.end()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def examined(model: Path) -> Examination:
    return with_files(examine_config(load({}, model=str(model)), build=None))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_transformers_5_saved_answers_as_before(judge: Judge, tmp_path: Path, name: str) -> None:
    """Issue 36, row 3: with 10,000 for rope_theta it answers otherwise."""
    intact, model = write_model(tmp_path / "intact", name), write_model(tmp_path / "model", name)
    config = json.loads((model / "config.json").read_text())
    rope = {"rope_type": "default", **(config.pop("rope_scaling") or {}), "rope_theta": config.pop("rope_theta")}
    (model / "config.json").write_text(json.dumps(config | {"rope_parameters": rope, "transformers_version": "5.0.0"}))
    before, after = judge.answers(examined(intact), intact), judge.answers(examined(model), model)
    assert after == before
    assert isinstance(after["completion"], list)


@pytest.mark.timeout(7200)
def test_what_passes_the_check_answers_and_what_does_not_fails(judge: Judge, tmp_path: Path) -> None:
    for name in SHAPES:
        write_model(tmp_path / name, name)
    intact = {name: judge.answers(examined(tmp_path / name), tmp_path / name) for name in NAMES}
    assert all(not examined(tmp_path / name).failed for name in NAMES)
    assert all(isinstance(answer, list) for answers in intact.values() for answer in answers.values()), intact
    cells, wrong, seen = Counter[str](), [], set[str]()
    model = tmp_path / "case"
    for case in range(CASES):
        name, fault = NAMES[case % len(NAMES)], FAULTS[case // len(NAMES) % len(FAULTS)]
        for attempt in range(30):  # most times another fault than before, and always one that changes something
            shutil.rmtree(model, ignore_errors=True)
            shutil.copytree(tmp_path / name, model)
            label = f"{name}: {fault(model, tmp_path / 'other', random.Random(f'{SEED} {case} {attempt}'))}"
            if contents(model) != contents(tmp_path / name) and (label not in seen or attempt > 20):
                break
        seen.add(label)
        examination = examined(model)
        answers = judge.answers(examination, model)
        # The check says that the model takes no chats, so that its completions are compared alone.
        chats = not any(finding.code == NO_TEMPLATE for finding in examination.findings)
        good = answers["completion"] == intact[name]["completion"] and (
            not chats or answers["chat"] == intact[name]["chat"]
        )
        cell = f"{'refused' if examination.failed else 'accepted'}, {'good' if good else 'bad'}"
        cells[cell] += 1
        if (examination.failed == good) and not (good and CUT_OFF.search(label)):
            reasons = [f"{finding.setting}: {finding.why}" for finding in examination.findings][:3]
            wrong.append(f"{label} -> {cell}: {reasons} {answers}"[:600])
    print(dict(cells), len(seen), "different faults")
    assert not wrong, "\n".join(wrong)
