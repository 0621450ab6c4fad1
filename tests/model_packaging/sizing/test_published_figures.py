"""Predictions beside what AWS publishes: docs/predictions.md has the table, and its errors stay within the limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import log
from typing import Any

import pytest

from handler.neuron.hardware import chip_rates
from tests.model_packaging.sizing import comparison_page as page
from tests.model_packaging.sizing.published_figures import METRICS, compared, median_error, predicted, published


def test_the_page_has_what_is_computed() -> None:
    text = page.PREDICTIONS.read_text()
    assert set(re.findall(r"<!-- table (\S+) -->", text)) == set(page.comparison_tables())
    assert page.completed(text) == text, "python -m tests.model_packaging.sizing.comparison_page writes it anew"


def test_judged_predictions_are_within_a_quarter_in_the_median() -> None:
    judged = [figure for figure in compared() if figure.judged]
    assert len(judged) >= 25
    assert median_error(judged) <= 0.25
    groups = page.groups(judged)
    for name in ("tpot_ms", "tokens_per_second", "NxD Inference", "native plugin"):
        assert median_error(groups[name]) <= 0.25, name
    assert median_error(groups["ttft_ms"]) <= 0.35  # the page says so


def test_the_worst_figures_are_named_with_a_reason() -> None:
    text = page.PREDICTIONS.read_text().partition("The worst figures:")[2].partition("## Judged")[0]
    table, _, reasons = text.partition("<!-- end -->")
    worst = {line.split("|")[1].split("-")[0].strip() for line in table.splitlines() if re.match(r"\| \w+-?\d?", line)}
    assert {"Llama", "gpt", "Mistral"} <= worst
    for name in ("Llama 2 and 3 70B", "gpt-oss-120b", "Mistral 7B", "Llama 2 7B"):
        assert f"of {name}" in reasons


def test_each_figure_has_its_source_and_its_use() -> None:
    document = published()
    for run in document["figures"]:
        assert run["use"] in ("fitted", "judged")
        assert run["source"].startswith("https://github.com/aws-neuron/")
        assert run["model"] in document["models"]
        assert any(metric in run for metric in METRICS)
    assert {run["use"] for run in document["figures"] if run["instance"].startswith("trn1")} == {"fitted"}
    assert {run["use"] for run in document["figures"] if run["instance"].startswith("inf2")} == {"judged"}


FITTED = ("weight_share", "cache_share", "compute_share", "layer_seconds", "step_seconds")
CONSTANTS = [*(("trn1", name) for name in FITTED), ("trn2", "compute_share"), ("trn2", "layer_seconds")]


@contextmanager
def changed(platform: str, name: str, factor: float) -> Iterator[None]:
    before = chip_rates.CHIPS[platform]
    chips: dict[str, Any] = chip_rates.CHIPS  # type: ignore[assignment]
    chips[platform] = replace(before, **{name: getattr(before, name) * factor})
    try:
        yield
    finally:
        chips[platform] = before


def fitted_error(platform: str) -> float:
    """The mean that was minimised: over TPOT (or tokens a second) and TTFT of the fitted runs."""
    document, errors = published(), []
    for run in document["figures"]:
        if run["use"] == "fitted" and run["instance"].startswith(platform):
            found = predicted(run, document["models"])
            for metric in ("ttft_ms", "tpot_ms" if "tpot_ms" in run else "tokens_per_second"):
                errors.append(abs(log(found[metric] / run[metric])))
    return sum(errors) / len(errors)


@pytest.mark.parametrize(("platform", "name"), CONSTANTS)
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_constant_is_where_the_fitted_figures_put_it(platform: str, name: str, factor: float) -> None:
    best = fitted_error(platform)
    with changed(platform, name, factor):
        assert fitted_error(platform) > best


def test_inf2_has_the_constants_of_trn1() -> None:
    inf2, trn1 = chip_rates.CHIPS["inf2"], chip_rates.CHIPS["trn1"]
    assert replace(inf2, link=trn1.link) == trn1
    shared = ("weight_share", "cache_share", "step_seconds")
    assert all(getattr(chip_rates.CHIPS["trn2"], name) == getattr(trn1, name) for name in shared)
