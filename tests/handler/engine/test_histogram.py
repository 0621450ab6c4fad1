"""Values observed together are those observed one by one."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from handler.engine.v1.tokens.histogram import observe_all

VALUES = [0.001, 0.01, 0.0100001, 0.02, 0.02, 0.02, 0.5, 99.0, 0.0, -1.0]


@pytest.mark.parametrize("values", [[], [0.02], VALUES, VALUES * 30])
def test_as_one_by_one(values: list[float]) -> None:
    registry = CollectorRegistry()
    buckets = (0.01, 0.02, 0.05, 1.0)
    together = Histogram("one", "", ["engine"], buckets=buckets, registry=registry).labels("0")
    single = Histogram("two", "", ["engine"], buckets=buckets, registry=registry).labels("0")
    observe_all(together, values)
    for value in values:
        single.observe(value)
    lines = [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
    one, two = (
        {
            name.removeprefix(metric): float(value)
            for name, _, value in (line.rpartition(" ") for line in lines)
            if name.startswith(metric)
        }
        for metric in ("one", "two")
    )
    assert one == pytest.approx(two)
    assert len(one) == len(buckets) + 3
