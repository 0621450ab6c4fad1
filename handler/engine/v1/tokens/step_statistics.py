"""Adds up vLLM's statistics of several steps, and gives them to vLLM's loggers together.

vLLM records every step by itself: 14 counters, of which most get a zero, and 5 gauges. With 32 streams that was 8 %
of a token's cost. All that a step adds up can be added up before, and of a gauge the last value counts. Whoever reads
the metrics has `record` called first, so nobody sees an old one.

Used of vLLM: `StatLoggerManager.record` (v1/metrics/loggers.py), `IterationStats`, to which each output of a step is
added, and `SchedulerStats` (v1/metrics/stats.py). Seen on vLLM 0.16.0, 0.24.0, 0.29.0 and 0.32.0.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields
from typing import Any, Final

from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import IterationStats, PrefixCacheStats, SchedulerStats

from handler.engine.v1.tokens import version_differences as versions
from handler.engine.v1.tokens.histogram import observe_all

RECORDED_AFTER = 1.0  # seconds
# What the scheduler says of a step: the last value counts, or, of the prefix cache, numbers are added up. Whatever else
# it says is recorded at once.
SUMMED: Final = frozenset(
    (
        *("num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs", "num_kv_fetch_reqs_by_stage"),
        *("step_counter", "current_wave", "kv_cache_usage", "encoder_cache_usage", "prefix_cache_stats"),
    )
)
OTHERS: Final = tuple(each.name for each in fields(SchedulerStats) if each.name not in SUMMED)
CACHE_COUNTS: Final = tuple(each.name for each in fields(PrefixCacheStats) if type(each.default) is int)
CACHE_OTHERS: Final = tuple(each.name for each in fields(PrefixCacheStats) if each.name not in CACHE_COUNTS)


class StepStatistics:
    """The statistics that have not been recorded yet. Use it on the engine's loop only.

    :ivar gaps: the times between tokens.
    :ivar gap_histograms: vLLM's own of these times, by the engine's index.
    :ivar size_histograms: vLLM's own of the tokens of a step.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        self._manager = llm.logger_manager
        self._enabled = bool(llm.log_stats)
        self._loop = asyncio.get_running_loop()
        self._mm_stats = versions.mm_cache_stats(llm)
        loggers = () if self._manager is None else self._manager.stat_loggers
        prometheus = [each for each in loggers if isinstance(each, PrometheusStatLogger)]
        self.gap_histograms = [each.histogram_inter_token_latency for each in prometheus]
        self.size_histograms = [each.histogram_iteration_tokens for each in prometheus]
        for each in prometheus:
            each.histogram_iteration_tokens = dict.fromkeys(each.histogram_iteration_tokens, _Unobserved())
        self.gaps: list[float] = []
        self._sizes: list[float] = []
        self._index = 0
        self._sum, self._before = IterationStats(), 0
        self._steps = 0  # of which `_sum` is the sum
        self._scheduler: SchedulerStats | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, message: EngineCoreOutputs) -> IterationStats | None:
        """The object to which the outputs of a step are added. None: there are no statistics."""
        if message.engine_index != self._index:
            self.record()
            self._index = message.engine_index
        if not self._enabled or not message.outputs:
            return None
        self._sum.iteration_timestamp = time.time()
        self._before = versions.step_tokens(self._sum)
        return self._sum

    def end(self, message: EngineCoreOutputs) -> None:
        """All outputs of a step have been added."""
        if self._enabled and message.outputs:
            self._sizes.append(versions.step_tokens(self._sum) - self._before)
            self._steps += 1
        scheduler, earlier = message.scheduler_stats, self._scheduler
        if scheduler is not None:
            if earlier is not None and earlier.prefix_cache_stats is not None:
                _add(scheduler, earlier.prefix_cache_stats)
            self._scheduler = scheduler
            if _has_any(scheduler, OTHERS) or _has_any(scheduler.prefix_cache_stats, CACHE_OTHERS):
                self.record()
                return
        if self._timer is None:
            self._timer = self._loop.call_later(RECORDED_AFTER, self.record)

    def record(self) -> None:
        """Gives vLLM's loggers what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        (gaps, self.gaps), (sizes, self._sizes) = (self.gaps, []), (self._sizes, [])
        for histograms, values in ((self.gap_histograms, gaps), (self.size_histograms, sizes)):
            for each in histograms if values else ():  # this process may have no core of the first index
                observe_all(each[self._index], values)
        scheduler, self._scheduler = self._scheduler, None
        steps, self._steps = self._steps, 0
        if self._manager is None or not (steps or scheduler is not None):
            return
        total, self._sum = self._sum, IterationStats()
        self._manager.record(
            engine_idx=self._index,
            scheduler_stats=scheduler,
            iteration_stats=total if steps else None,
            mm_cache_stats=self._mm_stats(),
        )


class _Unobserved:
    """In place of a histogram of single steps, which would get the sum of several."""

    def observe(self, tokens: float) -> None:
        pass


def _has_any(statistics: object, names: tuple[str, ...]) -> bool:
    return any(getattr(statistics, name, None) for name in names)


def _add(scheduler: SchedulerStats, earlier: Any) -> None:
    counts = scheduler.prefix_cache_stats
    if counts is None:
        scheduler.prefix_cache_stats = earlier
        return
    for name in CACHE_COUNTS:
        setattr(counts, name, getattr(counts, name) + getattr(earlier, name))
