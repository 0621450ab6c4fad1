"""vLLM's histogram of the time between tokens, told of a step's tokens at once. Written for, and seen on, 0.16.0.

vLLM observes every token by itself (v1/metrics/loggers.py, `inter_token_latencies_iter`), which cost as much as a fifth
of what a streamed token costs in all. Finding each gap's bucket and adding to each bucket once gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Histogram
from vllm.v1.metrics.loggers import PrometheusStatLogger

from handler.engine.histogram import observe_all


class TokenGaps:
    """Make it with `of`.

    :param histograms: vLLM's, by the engine's index.
    """

    def __init__(self, histograms: Sequence[dict[int, Histogram]]) -> None:
        self._histograms = histograms

    @classmethod
    def of(cls, manager: Any) -> TokenGaps:
        """Over what `AsyncLLM.logger_manager` feeds; whatever else it feeds has no use for gaps."""
        loggers = () if manager is None else manager.stat_loggers
        return cls([each.histogram_inter_token_latency for each in loggers if isinstance(each, PrometheusStatLogger)])

    def observe(self, gaps: Sequence[float], engine_index: int) -> None:
        """:param gaps: seconds."""
        for by_engine in self._histograms:
            observe_all(by_engine[engine_index], gaps)
