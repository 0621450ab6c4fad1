"""Adds many values to a histogram of prometheus_client at a low cost."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from prometheus_client import Histogram


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """As `histogram.observe(value)` for each value, but it updates each bucket only once.

    vLLM observes the time before every token by itself (v1/metrics/loggers.py, `inter_token_latencies_iter`), which was
    a fifth of the cost of a streamed token.
    """
    if not values:
        return
    bounds = histogram._upper_bounds
    histogram._sum.inc(sum(values))
    for place, count in Counter([bisect_left(bounds, value) for value in values]).items():
        histogram._buckets[place].inc(count)
