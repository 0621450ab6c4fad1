"""`PlanCost`: what the plan of a configuration computes for the requests of a log, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets, compiled_buckets, powers
from handler.neuron.buckets.padding import PaddedTokens, padded_in_all
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.memory.memory_estimate import MemoryEstimate, estimate
from handler.neuron.planning.examination import CHOSEN
from handler.neuron.planning.planner import make_plan
from model_packaging.deployment.definition.limits import COMPILE_RATE
from model_packaging.tuning.length_log import RequestLengths


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What one plan costs for the requests of a log.

    :param batch: sequences computed for each one that ran, over the time; None if the log has no times.
    :param compile_seconds: an assumption: a minute a GB of weights for powers of two, and in proportion to the graphs.
        None if the size of the weights is not known.
    """

    plan: EnginePlan
    buckets: CompiledBuckets
    prefill: PaddedTokens
    decode: PaddedTokens
    batch: float | None
    compile_seconds: float | None
    memory: MemoryEstimate | None

    def document(self) -> dict[str, Json]:
        phases: dict[str, Json] = {
            one.phase: {"asked": one.asked, "computed": one.computed, "padding": one.padding}
            for one in (self.prefill, self.decode)
        }
        return {
            "line": self.plan.line,
            "prefill_buckets": [*self.buckets.prefill],
            "segmented": self.buckets.segmented,
            "decode_buckets": [*self.buckets.decode],
            "batch_buckets": [*self.buckets.batches],
            **phases,
            "sequences_computed_for_each": None if self.batch is None else round(self.batch, 3),
            "graphs": self.buckets.graphs,
            "compile_seconds": None if self.compile_seconds is None else round(self.compile_seconds),
            "memory": self.memory.document() if self.memory else None,
        }


def planned_buckets(
    config: EndpointConfig, facts: ModelFacts | None, instance: InstanceType | None
) -> tuple[EnginePlan, CompiledBuckets]:
    """Plans the configuration, and returns the plan's buckets with it.

    :raises SettingError: there is no plan, or its line has no buckets.
    """
    outcome = make_plan(config, facts, instance)
    if outcome.plan is None:
        first = outcome.errors[0]
        raise SettingError(first.setting, first.why, first.fix)
    buckets = compiled_buckets(outcome.plan)
    if buckets is None:
        why = f"with these settings, {outcome.plan.line} has no list of buckets that lengths decide"
        fix = "Give --instance or --line: a native line or nxdi, without speculation (on nxdi: without prefix caching)."
        raise SettingError("--line", why, fix)
    return outcome.plan, buckets


def plan_cost(
    config: EndpointConfig, facts: ModelFacts | None, instance: InstanceType | None, lengths: RequestLengths
) -> PlanCost:
    """Plans the configuration and counts what it computes.

    :param lengths: of requests that the plan serves (`read_lengths`, its limits).
    :raises SettingError: as `planned_buckets`.
    """
    plan, buckets = planned_buckets(config, facts, instance)
    memory = None
    if facts is not None and instance is not None:
        chosen: dict[str, Any] = {name: plan.engine_args[name] for name in CHOSEN if name in plan.engine_args}
        memory = estimate(facts, replace(config, **chosen), instance)
    prefill, decode = padded_in_all(buckets, lengths.prompts, lengths.contexts)
    return PlanCost(plan, buckets, prefill, decode, _batch(buckets, lengths), _compile(buckets, facts), memory)


def _batch(buckets: CompiledBuckets, lengths: RequestLengths) -> float | None:
    most = buckets.batches[-1]
    asked = sum(seconds * min(number, most) for number, seconds in lengths.running.items())
    computed = sum(seconds * buckets.batch(number) for number, seconds in lengths.running.items())
    return computed / asked if asked else None


def _compile(buckets: CompiledBuckets, facts: ModelFacts | None) -> float | None:
    if facts is None or not facts.weight_bytes:
        return None
    usual = 2 * len(powers(128, buckets.decode[-1]))
    return facts.weight_bytes / COMPILE_RATE * buckets.graphs / usual
