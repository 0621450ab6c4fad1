"""Computes the measurements of a block, and the ratios of pairs of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.lib.load_generator import LoadResult
from benchmarks.lib.probe import Ping
from benchmarks.lib.process_usage import Usage


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of one block. None if not applicable: no first token without a stream, no /ping unprobed."""

    wall_s: float  # first request sent to last reply ended
    tokens: int
    tokens_per_s: float
    requests_per_s: float
    latency_p50_ms: float
    latency_p95_ms: float
    cpu_s_per_1000_tokens: float | None  # of the HTTP process: user and system
    rss_mb: float  # of the HTTP process, after the block
    tree_rss_mb: float
    client_cpu_s: float
    connections: int
    core_busy: float | None = None  # of a core, by the engine's core process: what it leaves no front end can win
    tokens_per_event: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    pings: int = 0
    ping_p50_ms: float | None = None
    ping_p99_ms: float | None = None
    ping_max_ms: float | None = None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Interpolates linearly between the two nearest ranks, like numpy's default. None for an empty sequence."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def measure(result: LoadResult, pings: Sequence[Ping], before: Usage, after: Usage) -> Measurements:
    """Computes the measurements of a block. Failed requests are ignored here; they make the block invalid anyway.

    The inter-token latency is the gap between two reads that contained text. Tokens that arrive together are one
    arrival, on both sides. So sending them in one event or in several at once does not improve the result.
    """
    good = [sample for sample in result.samples if sample.error is None]
    tokens = sum(sample.tokens for sample in good)
    events = sum(sample.events for sample in good)
    wall = max(s.end for s in result.samples) - min(s.sent for s in result.samples)
    latencies = _ms([sample.end - sample.sent for sample in good])
    first = _ms([sample.arrivals[0] - sample.sent for sample in good if sample.arrivals])
    gaps = _ms([later - earlier for sample in good for earlier, later in pairwise(sample.arrivals)])
    answers = _ms([ping.seconds for ping in pings])
    return Measurements(
        wall_s=wall,
        tokens=tokens,
        tokens_per_s=tokens / wall if wall else 0.0,
        requests_per_s=len(good) / wall if wall else 0.0,
        latency_p50_ms=percentile(latencies, 50) or 0.0,
        latency_p95_ms=percentile(latencies, 95) or 0.0,
        cpu_s_per_1000_tokens=1000 * (after.cpu_s - before.cpu_s) / tokens if tokens else None,
        rss_mb=after.rss_bytes / 1e6,
        tree_rss_mb=after.tree_rss_bytes / 1e6,
        client_cpu_s=result.client_cpu_s,
        connections=result.connections,
        core_busy=(after.core_cpu_s - before.core_cpu_s) / wall if wall else None,
        tokens_per_event=tokens / events if events else None,
        ttft_p50_ms=percentile(first, 50),
        ttft_p95_ms=percentile(first, 95),
        itl_p50_ms=percentile(gaps, 50),
        itl_p99_ms=percentile(gaps, 99),
        pings=len(answers),
        ping_p50_ms=percentile(answers, 50),
        ping_p99_ms=percentile(answers, 99),
        ping_max_ms=max(answers, default=None),
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One entry of `bench.json`. `ratio` is ours / theirs: the median of the ratios of all pairs.

    A metric without another side has neither `theirs` nor a ratio. Then `pairs` is the number of measurements.
    """

    figure: str
    ours: float
    theirs: float | None
    ratio: float | None
    pairs: int
    low: float | None  # the smallest and the largest ratio of a pair
    high: float | None
    likely_low: float | None  # the 95 % interval of the median; None with fewer than 6 pairs, which have none
    likely_high: float | None
    unit: str
    better: str  # "more" or "less"


def compare(
    figure: str, pairs: Sequence[tuple[float, float]], unit: str, *, better: str = "less", worst: bool = False
) -> Comparison | None:
    """Compares the (ours, theirs) values of each pair. None if there is no pair, or a divisor is zero.

    A ratio is computed within a pair, whose two blocks ran right after one another. So a slow minute of the machine
    affects both. The medians of ours and theirs need not have this ratio. `worst` shows the largest value of each side
    instead of its median.
    """
    if not pairs or any(theirs <= 0 for _, theirs in pairs):
        return None
    ours, theirs = zip(*pairs, strict=True)
    ratios = [mine / other for mine, other in pairs]
    middle = max if worst else median
    likely_low, likely_high = interval(ratios) or (None, None)
    return Comparison(
        figure=figure,
        ours=middle(ours),
        theirs=middle(theirs),
        ratio=median(ratios),
        pairs=len(pairs),
        low=min(ratios),
        high=max(ratios),
        likely_low=likely_low,
        likely_high=likely_high,
        unit=unit,
        better=better,
    )


def alone(figure: str, values: Sequence[float], unit: str, *, better: str = "less") -> Comparison:
    """Returns the median of a metric of ours that has no other side."""
    return Comparison(figure, median(values), None, None, len(values), None, None, None, None, unit, better)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of the median, from ranks: ratios of timings are far from normally distributed.

    The median lies below the k-th smallest of n values as seldom as n coin tosses have fewer than k heads.
    """
    ordered = sorted(values)
    rank, below = 0, 0.0
    while True:
        below += math.comb(len(ordered), rank) / 2 ** len(ordered)
        if below > 0.025:
            break
        rank += 1
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * value for value in seconds]
