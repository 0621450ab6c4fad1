"""Metrics that all processes write and the leader sums up, by prometheus_client's multiprocess mode.

vLLM uses the same mode with its own `--api-server-count` (vllm/v1/metrics/prometheus.py). A counter's file stays when
its process ends, so no total decreases when a front end is replaced. The mode is switched on when prometheus_client is
imported (`container.serve`).
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, multiprocess

from container.process_group.process_context import ProcessContext

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def use(context: ProcessContext) -> None:
    """Writes this process's metrics into the leader's directory. Call it before any metric is made."""
    os.environ[VARIABLE] = os.fspath(context.metrics)


def summed(context: ProcessContext) -> CollectorRegistry:
    """The metrics of all processes, ours and vLLM's."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, os.fspath(context.metrics))  # type: ignore[no-untyped-call]
    return registry


def ended(context: ProcessContext, pid: int) -> None:
    """Removes the gauges of a process that has ended."""
    multiprocess.mark_process_dead(pid, os.fspath(context.metrics))  # type: ignore[no-untyped-call]
