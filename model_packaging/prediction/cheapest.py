"""Finds the instances and settings that serve a load within a latency limit, the cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.instance_catalogue import INSTANCES, degrees
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.memory.memory_estimate import Verdict
from model_packaging.prediction.generation import GenerationLoad
from model_packaging.prediction.plan_prediction import PlanPrediction, predict

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDemand:
    """A load with its limits.

    :param requests: requests a second.
    :param ttft, tpot: limits of the time to the first token and per token, in seconds.
    :param use: the share of an instance's rate that is used.
    :param prices: of an instance-hour by EC2 name. They replace the documented ones.
    """

    requests: float
    prompt: int
    output: int
    ttft: float = inf
    tpot: float = inf
    use: float = 0.7
    prices: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class InstanceOption:
    """The best setting of one instance type, or why it has none.

    :param instances: how many the load needs.
    :param why: empty if the load fits.
    """

    instance: InstanceType
    prediction: PlanPrediction | None
    instances: int = 0
    why: str = ""

    @property
    def cost_hour(self) -> float | None:
        price = self.prediction.price if self.prediction else None
        return None if price is None or self.why else price * self.instances

    def document(self) -> dict[str, Json]:
        found = self.prediction.document() if self.prediction else {"instance": self.instance.name}
        return {
            **found,
            "instances": self.instances or None,
            "cost_per_hour": self.cost_hour,
            "why_not": self.why or None,
        }


def instance_options(config: EndpointConfig, facts: ModelFacts, demand: ServiceDemand) -> list[InstanceOption]:
    """An option for each instance that SageMaker hosts: by cost, then those without a price, then what does not fit."""
    options = [_option(config, facts, instance, demand) for instance in INSTANCES if instance.hosting]

    def order(option: InstanceOption) -> tuple[bool, float, int]:
        cost = option.cost_hour
        return bool(option.why), inf if cost is None else cost, option.instances

    return sorted(options, key=order)


def _option(config: EndpointConfig, facts: ModelFacts, instance: InstanceType, demand: ServiceDemand) -> InstanceOption:
    refusal, found = "", []
    for degree in degrees(instance):
        for batch in BATCHES:
            load = GenerationLoad(batch=batch, prompt=demand.prompt, output=demand.output)
            try:
                one = predict(config, facts, instance, load, degree=degree, price=demand.prices.get(instance.name))
            except SettingError as error:
                refusal = error.message
                continue
            found.append(one)
    fitting = [one for one in found if one.memory is None or one.memory.verdict is not Verdict.DOES_NOT_FIT]
    good = [one for one in fitting if one.rates.first_token <= demand.ttft and one.rates.between_tokens <= demand.tpot]
    if good:
        # The fewest instances; of equal ones, the fastest for a caller.
        best = min(good, key=lambda one: (_needed(one, demand), one.rates.request_seconds))
        return InstanceOption(instance, best, _needed(best, demand))
    return InstanceOption(instance, None, why=next(_reasons(found, fitting, refusal, demand)))


def _needed(one: PlanPrediction, demand: ServiceDemand) -> int:
    return max(1, ceil(round(demand.requests * demand.output / (one.rates.tokens_per_second * demand.use), 9)))


def _reasons(
    found: list[PlanPrediction], fitting: list[PlanPrediction], refusal: str, demand: ServiceDemand
) -> Iterator[str]:
    if not found:
        yield refusal
    if not fitting:
        least = min(found, key=lambda one: one.memory.total / one.memory.available if one.memory else 0.0).memory
        assert least is not None
        yield f"memory: a core needs {least.total / 2**30:.1f} GiB at least, and has {least.available / 2**30:.1f}"
    first = min(one.rates.first_token for one in fitting)
    step = min(one.rates.between_tokens for one in fitting)
    if first > demand.ttft:
        yield f"first token after {first:.2f} s at best, and the limit is {demand.ttft:g} s"
    if step > demand.tpot:
        yield f"{step * 1000:.1f} ms a token at best, and the limit is {demand.tpot * 1000:g} ms"
    yield "no setting keeps both limits"
