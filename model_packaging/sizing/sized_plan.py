"""Reads what sizing needs of a plan: its buckets, its memory and its roofline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.errors import EndpointError, SettingError
from handler.neuron.buckets.compiled_buckets import CompiledBuckets, compiled_buckets
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.chip_rates import CHIPS
from handler.neuron.hardware.instance_catalogue import InstanceType, logical_cores
from handler.neuron.lines.line_registry import find_line
from handler.neuron.memory.memory_estimate import MemoryEstimate, Verdict, estimate
from handler.neuron.memory.memory_findings import host_finding
from handler.neuron.memory.memory_shape import memory_shape
from handler.neuron.planning.examination import completed
from handler.neuron.planning.planner import facts_read, make_plan
from model_packaging.sizing.roofline import Roofline


@dataclass(frozen=True, slots=True)
class SizedPlan:
    """A plan, with the model and the instance that it is for.

    :param config: the configuration with what the plan chose.
    :param facts, instance: None if they are not known.
    :param buckets: None if the plan has no lists of buckets that lengths decide.
    :param memory: None if the model or the instance is not known.
    :param warnings: what `check` would warn of.
    :param roofline: None if the model's shape or the instance's rates are not known.
    """

    config: EndpointConfig
    plan: EnginePlan
    facts: ModelFacts | None
    instance: InstanceType | None
    buckets: CompiledBuckets | None
    memory: MemoryEstimate | None
    roofline: Roofline | None
    warnings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the plan fits into a core's memory, as far as that is known."""
        return self.memory is None or self.memory.verdict is not Verdict.DOES_NOT_FIT

    def listed_buckets(self) -> CompiledBuckets:
        """The buckets.

        :raises SettingError: the plan has none.
        """
        if self.buckets is None:
            why = f"with these settings, {self.plan.line} has no list of buckets that lengths decide"
            fix = "Give --instance or --line: a native line or nxdi, without speculation (nxdi: no prefix caching)."
            raise SettingError("--line", why, fix)
        return self.buckets


def make_sized_plan(config: EndpointConfig, facts: ModelFacts | None, instance: InstanceType | None) -> SizedPlan:
    """Plans the configuration.

    :raises SettingError: there is no plan, or it has more ranks than the instance has cores.
    """
    outcome = make_plan(config, facts, instance, draft_model=_draft(config.speculative_model))
    if outcome.plan is None:
        first = outcome.errors[0]
        raise SettingError(first.setting, first.why, first.fix)
    sized = sized_plan(config, outcome.plan, facts_read(facts, config, find_line(outcome.plan.line)), instance)
    warnings = [finding for finding in outcome.findings if finding.severity is Severity.WARNING]
    if sized.memory is not None and not sized.memory.loads:
        warnings.append(host_finding(sized.memory))
    return replace(sized, warnings=tuple(warnings))


def sized_plan(
    config: EndpointConfig, plan: EnginePlan, facts: ModelFacts | None, instance: InstanceType | None
) -> SizedPlan:
    """Reads a plan that is there.

    :param facts: as the plan's line reads them.
    :raises SettingError: it has more ranks than the instance has cores.
    """
    config = completed(config, plan)
    memory = roofline = None
    if facts is not None and instance is not None:
        memory = estimate(facts, config, instance, draft=_draft(config.speculative_model))
        roofline = _roofline(config, facts, instance)
    return SizedPlan(config, plan, facts, instance, compiled_buckets(plan), memory, roofline)


@lru_cache(maxsize=1)
def _draft(model: str | None) -> ModelFacts | None:
    """The facts of the draft model, read once for all plans that are compared; None if they cannot be read."""
    try:
        return read_facts(model) if model else None
    except EndpointError:
        return None


def _roofline(config: EndpointConfig, facts: ModelFacts, instance: InstanceType) -> Roofline | None:
    known = facts.layers and facts.hidden_size and facts.heads and facts.kv_heads
    if not known or instance.platform not in CHIPS:
        return None
    shape = memory_shape(config, facts, instance)
    cores = logical_cores(instance, shape.lnc)
    if shape.degree > cores:
        raise SettingError("tensor_parallel_size", f"{shape.degree} ranks, and {cores} cores", f"Use {cores} or fewer.")
    width = 1.0 if shape.quantized else shape.width
    return Roofline(facts, CHIPS[instance.platform], shape.degree, cores // instance.chips, width, shape.cache_width)
