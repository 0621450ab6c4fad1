"""Computes the number of instances for a load, their cost and the reads of their start."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from handler.errors import SettingError
from handler.json_value import Json
from model_packaging.capacity.measured import FRONT_END, READ_SIZE, RESTORE_RATE, MeasuredServer
from model_packaging.deployment.definition.limits import Sizes, start_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load that a fleet has to serve.

    :param requests: requests per second.
    :param tokens: tokens of a reply.
    :param use: the share of an instance's measured rate that is used. The rest is for bursts and for lost instances.
    :param price: price of an instance-hour, in any currency.
    """

    requests: float
    tokens: int = 200
    use: float = 0.7
    price: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.requests <= 1e9:
            raise SettingError("--requests", "it must be above 0", "Give requests a second.")
        if not 1 <= self.tokens <= 10**6:
            raise SettingError("--output-tokens", "it must be 1 or more", "Give what an answer has on average.")
        if not 0 < self.use <= 1:
            raise SettingError("--use", "it is a share of an instance's rate", "Give 0.7, at most 1.")
        if not 0 <= self.price < 1e9:
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
    server: MeasuredServer
    tokens: float
    instances: int
    request_seconds: float
    in_flight: float
    front_end: float
    cost_hour: float
    cost_million: float
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
            "cost_per_hour": round(self.cost_hour, 2),
            "cost_per_million_tokens": round(self.cost_million, 4),
            "start_seconds": ceil(self.start),
            "start_reads": self.reads,
            "start_bytes": self.read_bytes,
            "start_reads_per_second": round(self.read_rate, 1),
            "server": self.server.name,
            "source": self.server.source,
        }


def fleet_for(demand: Demand, server: MeasuredServer) -> Fleet:
    """Returns the smallest fleet that serves the demand. It has at least one instance."""
    tokens = demand.requests * demand.tokens
    rate = server.tokens_per_second * demand.use
    instances = max(1, ceil(round(tokens / rate, 9)))
    seconds = demand.tokens * server.in_flight / server.tokens_per_second
    cost = instances * demand.price
    reads = ceil(server.weights / READ_SIZE)
    # The time of one instance alone. A throttled fleet takes longer (`strains`).
    reading = max(server.weights / RESTORE_RATE, 1.0)
    return Fleet(
        demand=demand,
        server=server,
        tokens=tokens,
        instances=instances,
        request_seconds=seconds,
        in_flight=demand.requests * seconds,
        front_end=min(rate, tokens) * FRONT_END / 1000,
        cost_hour=cost,
        cost_million=cost / (tokens * 3600) * 1e6,
        reads=instances * reads,
        read_bytes=instances * server.weights,
        read_rate=instances * reads / reading,
        start=start_seconds(Sizes(weights=server.weights, fetched=server.weights)),
    )
