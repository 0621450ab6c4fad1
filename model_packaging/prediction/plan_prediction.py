"""Predicts what a plan reaches on its instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import compiled_buckets
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.chip_rates import CHIPS, PRICES
from handler.neuron.hardware.instance_catalogue import logical_cores
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.memory.memory_estimate import MemoryEstimate, estimate
from handler.neuron.memory.memory_shape import memory_shape
from handler.neuron.planning.examination import CHOSEN
from handler.neuron.planning.planner import make_plan
from model_packaging.prediction.generation import GenerationLoad, GenerationRates, generation_rates, power_buckets
from model_packaging.prediction.roofline import Roofline


@dataclass(frozen=True, slots=True)
class PlanPrediction:
    """What one plan reaches on one instance, with one engine.

    :param price: of the instance for an hour; None if it is not known.
    """

    instance: InstanceType
    degree: int
    load: GenerationLoad
    rates: GenerationRates
    memory: MemoryEstimate | None
    price: float | None

    @property
    def cost(self) -> float | None:
        """The price of a million generated tokens, if the instance is never idle."""
        return None if self.price is None else self.price / 3600 / self.rates.tokens_per_second * 1e6

    def document(self) -> dict[str, Json]:
        return {
            "instance": self.instance.name,
            "tensor_parallel_size": self.degree,
            "batch": self.load.batch,
            "input_tokens": self.load.prompt,
            "output_tokens": self.load.output,
            **self.rates.document(),
            "memory": self.memory.verdict.value if self.memory else None,
            "price_per_hour": self.price,
            "cost_per_million_tokens": None if self.cost is None else round(self.cost, 4),
        }


def predict(
    config: EndpointConfig,
    facts: ModelFacts,
    instance: InstanceType,
    load: GenerationLoad,
    *,
    degree: int | None = None,
    price: float | None = None,
) -> PlanPrediction:
    """Plans the configuration for a load, and predicts it.

    :param config: its max_num_seqs is replaced by the load's batch, and a max_model_len that is too short is raised.
    :param degree: replaces the tensor-parallel degree.
    :param price: of the instance for an hour; None: the documented one, if there is one.
    :raises SettingError: there is no plan for it.
    """
    given: dict[str, Any] = {"max_num_seqs": load.batch, "instance": instance.name}
    if degree is not None:
        given["tensor_parallel_size"] = degree
    if (config.max_model_len or 0) < load.prompt + load.output:
        given["max_model_len"] = -(-(load.prompt + load.output) // 128) * 128
    config = replace(config, **given)
    outcome = make_plan(config, facts, instance)
    if outcome.plan is None:
        first = outcome.errors[0]
        raise SettingError(first.setting, first.why, first.fix)
    price = PRICES.get(instance.name) if price is None else price
    found = plan_prediction(config, outcome.plan, facts, instance, load, price)
    if found is None:
        problem = f"{facts.where} has no shape of a transformer in its config.json"
        raise SettingError("MODEL", problem, "Give the directory of a language model.")
    return found


def plan_roofline(
    config: EndpointConfig, plan: EnginePlan, facts: ModelFacts, instance: InstanceType
) -> Roofline | None:
    """The roofline of a plan; None if the model's shape or the instance's rates are not known."""
    known = facts.layers and facts.hidden_size and facts.heads and facts.kv_heads
    if not known or instance.platform not in CHIPS:
        return None
    shape = memory_shape(_with_choices(config, plan), facts, instance)
    cores = logical_cores(instance, shape.lnc)
    if shape.degree > cores:
        raise SettingError("tensor_parallel_size", f"{shape.degree} ranks, and {cores} cores", f"Use {cores} or fewer.")
    width = 1.0 if shape.quantized else shape.width
    return Roofline(facts, CHIPS[instance.platform], shape.degree, cores // instance.chips, width, shape.cache_width)


def plan_prediction(
    config: EndpointConfig,
    plan: EnginePlan,
    facts: ModelFacts,
    instance: InstanceType,
    load: GenerationLoad,
    price: float | None = None,
) -> PlanPrediction | None:
    """Predicts a plan as it is; None if it has no roofline. A plan without lists of buckets counts with powers of two.

    :raises SettingError: the plan has more ranks than the instance has cores.
    """
    config = _with_choices(config, plan)
    line = plan_roofline(config, plan, facts, instance)
    if line is None:
        return None
    shape = memory_shape(config, facts, instance)
    buckets = compiled_buckets(plan) or power_buckets(shape.length, shape.sequences)
    rates = generation_rates(line, buckets, load)
    return PlanPrediction(instance, shape.degree, load, rates, estimate(facts, config, instance), price)


def _with_choices(config: EndpointConfig, plan: EnginePlan) -> EndpointConfig:
    chosen: dict[str, Any] = {name: plan.engine_args[name] for name in CHOSEN if name in plan.engine_args}
    return replace(config, **chosen)
