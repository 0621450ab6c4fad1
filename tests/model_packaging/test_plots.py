"""What a plot says: its finding in the title, the concurrency at each point, uncrossed lines; starts as bars."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_packaging import plots
from model_packaging.deployment.start_timeline import bars, last_start
from notebooks.plots import STEPS, restored, timeline

Runs = dict[int, dict[str, Any]]


def run(rate: float, first: float, between: float) -> dict[str, Any]:
    spread = {"time_to_first_token": first, "time_between_tokens": between}
    return {"tokens_per_second": rate, **{name: {"p50": at, "p90": 1.5 * at} for name, at in spread.items()}}


@pytest.mark.parametrize(
    ("runs", "finding"),
    [
        (
            {1: run(100, 0.02, 0.01), 16: run(310, 0.2, 0.03)},
            "16 at a time instead of 1: 310 instead of 100 tokens/s, first",
        ),
        ({4: run(100, 0.02, 0.01)}, "4 at a time: 100 tokens/s, first token after 20 ms"),
        ({1: run(0, 0.02, 0.01), 2: run(5, 0.2, 0.1)}, "2 at a time instead of 1: 5 instead of 0 tokens/s, first"),
        ({1: {**run(1, 1, 1), "time_to_first_token": None}}, "No request was answered"),
    ],
)
def test_the_title_is_the_finding_and_each_point_has_its_concurrency(runs: Runs, finding: str, tmp_path: Path) -> None:
    figure = plots.throughput(runs)
    assert figure.get_suptitle().startswith(finding)
    answered = [str(at) for at, each in runs.items() if each["time_to_first_token"]]
    for axes in figure.axes:
        assert [text.get_text().split()[0] for text in axes.texts] == answered
        assert "ms" in axes.get_xlabel()
    figure.savefig(tmp_path / "plot.png")


def test_no_line_crosses_itself_whatever_was_measured() -> None:
    seeded = random.Random(7)
    for _ in range(100):
        runs = {at: run(seeded.uniform(1, 900), seeded.random(), seeded.random()) for at in (1, 2, 4, 8, 16)}
        for axes in plots.throughput(runs).axes:
            heights = np.asarray(axes.lines[0].get_ydata())
            assert all(low <= high for low, high in pairwise(heights)), "a line that only rises cannot cross itself"


def test_a_step_has_one_colour_in_every_plot_and_a_compile_that_of_its_step() -> None:
    starts = {"compiled": {"compile: start engine": (2.0, 40.0)}, "restored": {"start engine": (2.0, 4.0)}}
    (axes,) = timeline(starts).axes
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1
    assert len(set(STEPS.values())) == len(STEPS)
    found = {"find artifacts": (1.0, 0.2), "restore artifacts": (1.2, 0.1), "start engine": (2.0, 75.0)}
    assert restored(112, found).get_suptitle() == "What took 112 s to compile is there again after 0.3 s"


def step(name: str, begin: float, end: float, *waited_for: str) -> dict[str, object]:
    return {"step": name, "begin_seconds": begin, "end_seconds": end, "waited_for": list(waited_for)}


def line(*steps: dict[str, object]) -> str:
    return json.dumps({"event": "timeline", "steps": steps})


def test_the_last_start_is_drawn_on_one_axis() -> None:
    last = (
        step("fetch model", 0.0, 5.0),
        step("import vLLM", 0.0, 2.5),
        step("start engine", 5.0, 10.0, "fetch model"),
    )
    log = [line(step("fetch model", 0, 1)), "other", line(*last), '{"event": "timeline" cut off', '"timeline"']
    assert bars(last_start(log)) == [
        f"{'':12}  0 s{'10.0 s':>47}",
        f"{'fetch model':12}  {'#' * 25:51}    5.0 s",
        f"{'import vLLM':12}  {'#' * 12:51}    2.5 s",
        f"{'start engine':12}  {' ' * 25 + '#' * 25:51}    5.0 s  after fetch model",
    ]


def test_a_log_without_the_end_of_a_start() -> None:
    assert bars(last_start(["[ 0.1 s] listening"])) == ["No start has ended in these lines of the log."]
