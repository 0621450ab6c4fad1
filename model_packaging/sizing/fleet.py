"""Computes the number of instances for a load, their cost and the reads of their start."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from handler.errors import SettingError
from handler.json_value import Json
from handler.storage.s3_download import PART
from model_packaging.deployment.definition.limits import DISK_RATE, Sizes, start_seconds

# CPU seconds of the serving process for 1,000 streamed tokens (benchmarks/README.md, "Measured", 32 streams).
FRONT_END: Final = 0.030


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load that a fleet has to serve. Lengths are in tokens.

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
        if not 1 <= self.output <= 10**6:
            raise SettingError("--output-tokens", "it must be 1 or more", "Give what an answer has on average.")
        if not 0 < self.use <= 1:
            raise SettingError("--use", "it is a share of an instance's rate", "Give 0.7, at most 1.")

    def instances(self, tokens_per_second: float) -> int:
        """The instances with this rate that the load needs: at least one."""
        return max(1, ceil(round(self.requests * self.output / (tokens_per_second * self.use), 9)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRates:
    """The rates of one instance.

    :param tokens_per_second: generated tokens per second with `in_flight` concurrent requests.
    :param weights: bytes that a start reads from S3, with compiled graphs.
    :param price: of an instance-hour, in any currency; None if it is not known.
    :param source: where the figures are from.
    """

    name: str
    tokens_per_second: float
    in_flight: int
    weights: int
    price: float | None
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.tokens_per_second < 1e9:
            problem = f"{self.tokens_per_second:g} is no rate of an instance"
            raise SettingError("--tokens-per-second", problem, "Measure it: `neuron-endpoint bench`.")
        if self.in_flight < 1:
            raise SettingError("--in-flight", "it must be 1 or more", "Give max_num_seqs.")
        if not 0 <= self.weights < 1e15:
            raise SettingError("--weights-gb", "it is no size", "Give what `neuron-endpoint inspect` says.")
        if self.price is not None and not 0 <= self.price < 1e9:
            raise SettingError("--price", "it is no price", "Give what an instance costs for an hour.")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The instances for a demand. Times are in seconds, sizes in bytes.

    :param tokens: generated tokens per second.
    :param request_seconds: the time of one reply at the concurrency with which the instance was measured.
    :param in_flight: concurrent requests on all instances together (Little's law).
    :param front_end: CPU cores of one instance's serving process.
    :param reads: S3 requests when all instances start.
    :param read_rate: S3 requests per second while all instances start.
    :param start: the time of one instance's start, without the time in which AWS provides the instance.
    """

    demand: Demand
    rates: InstanceRates
    tokens: float
    instances: int
    request_seconds: float
    in_flight: float
    front_end: float
    cost_hour: float | None
    cost_million: float | None
    reads: int
    read_bytes: int
    read_rate: float
    start: float

    def document(self) -> dict[str, Json]:
        return {
            "requests_per_second": self.demand.requests,
            "tokens_per_second": round(self.tokens, 1),
            "instances": self.instances,
            "request_seconds": round(self.request_seconds, 2),
            "in_flight": ceil(self.in_flight),
            "front_end_cores": round(self.front_end, 3),
            "cost_per_hour": None if self.cost_hour is None else round(self.cost_hour, 2),
            "cost_per_million_tokens": None if self.cost_million is None else round(self.cost_million, 4),
            "start_seconds": ceil(self.start),
            "start_reads": self.reads,
            "start_bytes": self.read_bytes,
            "start_reads_per_second": round(self.read_rate, 1),
            "server": self.rates.name,
            "source": self.rates.source,
        }


def fleet_for(demand: Demand, rates: InstanceRates) -> Fleet:
    """Returns the smallest fleet that serves the demand. It has at least one instance."""
    tokens = demand.requests * demand.output
    instances = demand.instances(rates.tokens_per_second)
    seconds = demand.output * rates.in_flight / rates.tokens_per_second
    cost = None if rates.price is None else instances * rates.price
    reads = ceil(rates.weights / PART)
    # The time of one instance alone. A throttled fleet takes longer (`limit_uses`).
    reading = max(rates.weights / DISK_RATE, 1.0)
    return Fleet(
        demand=demand,
        rates=rates,
        tokens=tokens,
        instances=instances,
        request_seconds=seconds,
        in_flight=demand.requests * seconds,
        front_end=min(rates.tokens_per_second * demand.use, tokens) * FRONT_END / 1000,
        cost_hour=cost,
        cost_million=None if cost is None else cost / (tokens * 3600) * 1e6,
        reads=instances * reads,
        read_bytes=instances * rates.weights,
        read_rate=instances * reads / reading,
        start=start_seconds(Sizes(weights=rates.weights, fetched=rates.weights)),
    )
