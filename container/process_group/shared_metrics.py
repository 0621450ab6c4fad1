"""Figures that several processes write and the leader sums: prometheus_client's multiprocess mode, in its directory.

vLLM's figures go the same way under its own `--api-server-count` (vllm/v1/metrics/prometheus.py). A counter's file
outlives its process, so that no total goes down when a front end is replaced. Whether the mode is on is decided when
prometheus_client is imported (`container.serve`).
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, multiprocess

from container.process_group.process_context import ProcessContext

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def use(post: ProcessContext) -> None:
    """This process's figures go into the leader's directory. Before the first of them is made."""
    os.environ[VARIABLE] = os.fspath(post.metrics)


def summed(post: ProcessContext) -> CollectorRegistry:
    """All figures of all processes, ours and vLLM's."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, os.fspath(post.metrics))  # type: ignore[no-untyped-call]
    return registry


def ended(post: ProcessContext, pid: int) -> None:
    """A process has ended: what it said is now, is no more."""
    multiprocess.mark_process_dead(pid, os.fspath(post.metrics))  # type: ignore[no-untyped-call]
