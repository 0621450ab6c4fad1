"""Finds the instances and settings that serve a load within a latency limit, the cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.instance_catalogue import INSTANCES, InstanceType, degrees
from handler.neuron.memory.memory_shape import lnc_of
from model_packaging.sizing.prediction import GenerationLoad, PlanPrediction, predict, unpredicted
from model_packaging.sizing.sized_plan import make_sized_plan

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load that the instances have to serve. Lengths are in tokens.

    :param requests: requests per second.
    :param ttft, tpot: limits of the time to the first token and per token, in seconds.
    :param use: the share of an instance's rate that is used. The rest is for bursts and for lost instances.
    """

    requests: float
    prompt: int = 1024
    output: int = 256
    ttft: float = inf
    tpot: float = inf
    use: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.requests <= 1e9:
            raise SettingError("--requests", "it must be above 0", "Give requests a second.")
        if not 0 < self.use <= 1:
            raise SettingError("--use", "it is a share of an instance's rate", "Give 0.7, at most 1.")
        GenerationLoad(batch=1, prompt=self.prompt, output=self.output)  # refuses lengths that are none

    def instances(self, tokens_per_second: float) -> int:
        """The instances with this rate that the load needs: at least one."""
        return max(1, ceil(round(self.requests * self.output / (tokens_per_second * self.use), 9)))


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
        return None if price is None else price * self.instances

    def document(self) -> dict[str, Json]:
        prediction = self.prediction.document() if self.prediction else {"instance": self.instance.name}
        return {
            **prediction,
            "instances": self.instances or None,
            "cost_per_hour": self.cost_hour,
            "why_not": self.why or None,
        }


def instance_options(
    config: EndpointConfig,
    facts: ModelFacts,
    demand: Demand,
    prices: Mapping[str, float],
    *,
    only: InstanceType | None = None,
    degree: int | None = None,
    batches: Sequence[int] = BATCHES,
) -> list[InstanceOption]:
    """An option for each instance that SageMaker hosts: by cost, then those without a price, then those whose host may
    lack the memory to load the model, then what does not fit.

    :param prices: of an instance-hour by EC2 name. With any, only these are used: they are of another kind than the
        documented ones, and the two are not compared.
    :param only: the only instance to look at.
    :param degree: the only tensor-parallel degree to look at; None: all that the instance has.
    """
    instances = [only] if only else [instance for instance in INSTANCES if instance.hosting]
    options = [
        _instance_option(
            config,
            facts,
            instance,
            demand,
            prices,
            (degree,) if degree else degrees(instance, lnc_of(config, instance)),
            batches,
        )
        for instance in instances
    ]

    def order(option: InstanceOption) -> tuple[bool, bool, float, int]:
        cost, memory = option.cost_hour, option.prediction.sized.memory if option.prediction else None
        loads = memory is None or memory.loads
        return bool(option.why), not loads, inf if cost is None else cost, option.instances

    return sorted(options, key=order)


def _instance_option(
    config: EndpointConfig,
    facts: ModelFacts,
    instance: InstanceType,
    demand: Demand,
    prices: Mapping[str, float],
    degrees: Sequence[int],
    batches: Sequence[int],
) -> InstanceOption:
    """The best of these degrees and batches on one instance: the fewest instances; of equal ones, the fastest reply."""
    refusal, predictions = "", []
    for degree in degrees:
        for batch in batches:
            load = GenerationLoad(batch=batch, prompt=demand.prompt, output=demand.output)
            try:
                predictions.append(predict_load(config, facts, instance, load, degree=degree, prices=prices))
            except SettingError as error:
                refusal = refusal or error.message
    fitting = [prediction for prediction in predictions if prediction.sized.fits]
    good = [
        prediction
        for prediction in fitting
        if prediction.rates.first_token <= demand.ttft and prediction.rates.between_tokens <= demand.tpot
    ]
    if not good:
        return InstanceOption(instance, None, why=next(_reasons(predictions, fitting, refusal, demand)))

    def order(prediction: PlanPrediction) -> tuple[int, float]:
        return demand.instances(prediction.rates.tokens_per_second), prediction.rates.request_seconds

    best = min(good, key=order)
    return InstanceOption(instance, best, demand.instances(best.rates.tokens_per_second))


def predict_load(
    config: EndpointConfig,
    facts: ModelFacts,
    instance: InstanceType,
    load: GenerationLoad,
    *,
    degree: int | None = None,
    prices: Mapping[str, float] = {},
) -> PlanPrediction:
    """Plans the configuration for a load, and predicts it.

    :param config: its max_num_seqs is replaced by the load's batch, and a max_model_len that is too short is raised.
    :param degree: replaces the tensor-parallel degree.
    :param prices: as in `predict`.
    :raises SettingError: there is no plan for it, or the model has no shape.
    """
    changes: dict[str, Any] = {"max_num_seqs": load.batch, "instance": instance.name}
    if degree is not None:
        changes["tensor_parallel_size"] = degree
    if (config.max_model_len or 0) < load.prompt + load.output:
        changes["max_model_len"] = -(-(load.prompt + load.output) // 128) * 128
    sized = make_sized_plan(replace(config, **changes), facts, instance)
    refused = sized.facts and unpredicted(sized.config, sized.plan, sized.facts, instance)
    if refused:
        raise refused
    prediction = predict(sized, load, prices)
    if prediction is None:
        problem = f"{facts.where} has no shape of a transformer in its config.json"
        raise SettingError("MODEL", problem, "Give the directory of a language model.")
    return prediction


def _reasons(
    predictions: Sequence[PlanPrediction], fitting: Sequence[PlanPrediction], refusal: str, demand: Demand
) -> Iterator[str]:
    if not predictions:
        yield refusal
    if not fitting:
        estimates = [prediction.sized.memory for prediction in predictions if prediction.sized.memory]
        memory = min(estimates, key=lambda estimate: estimate.total / estimate.available)
        yield f"memory: a core needs {memory.total / 2**30:.1f} GiB at least, and has {memory.available / 2**30:.1f}"
    first = min(prediction.rates.first_token for prediction in fitting)
    step = min(prediction.rates.between_tokens for prediction in fitting)
    if first > demand.ttft:
        yield f"first token after {first:.2f} s at best, and the limit is {demand.ttft:g} s"
    if step > demand.tpot:
        yield f"{step * 1000:.1f} ms a token at best, and the limit is {demand.tpot * 1000:g} ms"
    yield "no setting keeps both limits"
