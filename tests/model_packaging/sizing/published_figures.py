"""Compares predictions with figures that AWS publishes. The file has each source, and which figures were fitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from handler.neuron.buckets.padding import DECODE, padded_tokens
from handler.neuron.checkpoint.model_facts import facts_from
from handler.neuron.hardware.chip_rates import CHIPS
from handler.neuron.hardware.instance_catalogue import find, logical_cores
from model_packaging.sizing.prediction import GenerationLoad, generation_rates, power_buckets
from model_packaging.sizing.roofline import Roofline

FILE: Final = Path(__file__).with_name("published_figures.json")
METRICS: Final = ("tpot_ms", "ttft_ms", "tokens_per_second")
# This library prefills the prompts of a batch together, and starts the next batch when all have ended.
STATIC: Final = "Transformers NeuronX"


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One published number and its prediction.

    :param run: the whole row of the file.
    :param metric: one of `METRICS`, in the unit of its name.
    """

    run: Mapping[str, Any]
    metric: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """The relative error: 0.1 is a prediction that is 10 % too high."""
        return self.predicted / self.published - 1

    @property
    def judged(self) -> bool:
        return bool(self.run["use"] == "judged")


def published() -> dict[str, Any]:
    """The file: `about`, `not_compared`, `models` and `figures`."""
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def compared() -> list[ComparedFigure]:
    """Every published number beside its prediction, in the order of the file."""
    document = published()
    return [
        ComparedFigure(run, metric, run[metric], numbers[metric])
        for run in document["figures"]
        for numbers in (predicted(run, document["models"]),)
        for metric in METRICS
        if metric in run
    ]


def median_error(figures: Sequence[ComparedFigure]) -> float:
    """The median of the absolute relative errors."""
    return median(abs(figure.error) for figure in figures)


def roofline_of(run: Mapping[str, Any], models: Mapping[str, Any]) -> Roofline:
    """The roofline of a published run. Trn2 runs with logical cores of two physical ones."""
    instance = find(run["instance"], hosting=False)
    width = 1.0 if run["weights"] == "int8" else 2.0
    facts = facts_from(models[run["model"]], run["model"], local=False)
    cores = logical_cores(instance) // instance.chips
    return Roofline(facts, CHIPS[instance.platform], run["degree"], cores, width)


def predicted(run: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, float]:
    """The prediction of a published run, by metric."""
    line = roofline_of(run, models)
    batch = run["batch"]
    buckets = power_buckets(run["length"], batch, run.get("prefill_buckets", ()), run.get("decode_buckets", ()))
    rates = generation_rates(line, buckets, GenerationLoad(batch=batch, prompt=run["input"], output=run["output"]))
    first, rate = rates.first_token, rates.tokens_per_second
    if run["software"].startswith(STATIC):
        first = line.prefill(buckets.prefill_tokens(run["input"]), batch)
        decode = sum(
            one.computed // one.bucket * line.decode(batch, one.bucket)
            for one in padded_tokens(buckets, run["input"], run["output"])
            if one.phase == DECODE
        )
        rate = batch * run["output"] / (first + decode)
    return {"tpot_ms": 1000 * rates.between_tokens, "ttft_ms": 1000 * first, "tokens_per_second": rate}
