"""Counts what a plan computes for the requests of a log."""

from __future__ import annotations

from dataclasses import dataclass

from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.buckets.padding import PaddedTokens, padded_in_all
from handler.neuron.lines.native.native_prefill import powers
from model_packaging.deployment.definition.limits import COMPILE_RATE
from model_packaging.sizing.request_log import RequestLengths
from model_packaging.sizing.sized_plan import SizedPlan


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What one plan costs for the requests of a log.

    :param batch: sequences computed for each one that ran, over the time; None if the log has no times.
    :param compile_seconds: an assumption: a minute a GB of weights for powers of two, and in proportion to the graphs.
        None if the size of the weights is not known.
    """

    sized: SizedPlan
    buckets: CompiledBuckets
    prefill: PaddedTokens
    decode: PaddedTokens
    batch: float | None
    compile_seconds: float | None

    def document(self) -> dict[str, Json]:
        memory = self.sized.memory
        phases: dict[str, Json] = {
            one.phase: {"asked": one.asked, "computed": one.computed, "padding": one.padding}
            for one in (self.prefill, self.decode)
        }
        return {
            "line": self.sized.plan.line,
            "prefill_buckets": [*self.buckets.prefill],
            "segmented": self.buckets.segmented,
            "decode_buckets": [*self.buckets.decode],
            "batch_buckets": [*self.buckets.batches],
            **phases,
            "sequences_computed_for_each": None if self.batch is None else round(self.batch, 3),
            "graphs": self.buckets.graphs,
            "compile_seconds": None if self.compile_seconds is None else round(self.compile_seconds),
            "memory": memory.document() if memory else None,
        }


def plan_cost(sized: SizedPlan, lengths: RequestLengths) -> PlanCost:
    """Counts what a plan computes.

    :param lengths: of requests that the plan serves (`read_lengths`, its limits).
    :raises SettingError: the plan has no list of buckets.
    """
    buckets = sized.listed_buckets()
    prefill, decode = padded_in_all(buckets, lengths.prompts, lengths.contexts)
    weights = sized.facts.weight_bytes if sized.facts else None
    return PlanCost(sized, buckets, prefill, decode, _batch(buckets, lengths), _compile(buckets, weights))


def _batch(buckets: CompiledBuckets, lengths: RequestLengths) -> float | None:
    most = buckets.batches[-1]
    asked = sum(seconds * min(number, most) for number, seconds in lengths.running.items())
    computed = sum(seconds * buckets.batch(number) for number, seconds in lengths.running.items())
    return computed / asked if asked else None


def _compile(buckets: CompiledBuckets, weights: int | None) -> float | None:
    if not weights:
        return None
    usual = 2 * len(powers(128, buckets.decode[-1]))
    return weights / COMPILE_RATE * buckets.graphs / usual
