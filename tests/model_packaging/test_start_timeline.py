"""The steps of a start as bars."""

from __future__ import annotations

import json

from model_packaging.deployment.start_timeline import bars, last_start


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
