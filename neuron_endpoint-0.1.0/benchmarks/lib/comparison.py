"""The metrics of a run: the ids of `bench.json`, and the measurement behind each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.lib.block import Block
from benchmarks.lib.measurements import Comparison, compare
from benchmarks.lib.request_mix import RequestMix


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str  # {api} is empty for chat, {c} the concurrency
    measurement: str
    unit: str
    better: str = "less"
    worst: bool = False


_STREAMED = (
    _Metric("{api}stream_tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Metric("{api}stream_rps_c{c}", "requests_per_s", "requests/s", "more"),
    _Metric("{api}ttft_p50_c{c}", "ttft_p50_ms", "ms"),
    _Metric("{api}ttft_p95_c{c}", "ttft_p95_ms", "ms"),
    _Metric("{api}itl_p50_c{c}", "itl_p50_ms", "ms"),
    _Metric("{api}itl_p99_c{c}", "itl_p99_ms", "ms"),
    _Metric("{api}cpu_per_token_stream_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Metric("{api}core_busy_stream_c{c}", "core_busy", "cores"),
)
_WHOLE = (
    _Metric("{api}tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Metric("{api}rps_c{c}", "requests_per_s", "requests/s", "more"),
    _Metric("{api}latency_p50_c{c}", "latency_p50_ms", "ms"),
    _Metric("{api}cpu_per_token_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Metric("{api}core_busy_c{c}", "core_busy", "cores"),
)
_PROBED = (
    _Metric("ping_p50_ms", "ping_p50_ms", "ms"),
    _Metric("ping_p99_ms", "ping_p99_ms", "ms"),
    _Metric("ping_max_ms", "ping_max_ms", "ms", worst=True),
    _Metric("rss", "rss_mb", "MB"),
    _Metric("tree_rss", "tree_rss_mb", "MB"),
)


# On the stub. {tokens} is empty for replies of 256 tokens, {c} for 256 requests at once, {free} where the HTTP process
# is held to a share of a core.
_CEILING = (
    _Metric("ceiling_stub{c}{tokens}{free}", "tokens_per_s", "tokens/s", "more"),
    _Metric("ceiling_cpu_per_token{c}{tokens}{free}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Metric("ceiling_core_busy{c}{tokens}{free}", "core_busy", "cores"),
)
_PACED = (
    _Metric("stub_tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Metric("stub_ttft_p50_c{c}", "ttft_p50_ms", "ms"),
    _Metric("stub_itl_p99_c{c}", "itl_p99_ms", "ms"),
    _Metric("stub_cpu_per_token_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
)


@dataclass(frozen=True, slots=True)
class Started:
    """One start of one side, in seconds since its process was started."""

    side: str
    pair: int
    port_s: float
    ping_s: float
    ready_s: float
    first_sampled_s: float  # to the end of the first reply that was sampled; with vLLM that one compiles
    record: str = "start"


STARTED = (
    _Metric("start_port_s", "port_s", "s"),
    _Metric("start_ping_s", "ping_s", "s"),
    _Metric("start_ready_s", "ready_s", "s"),
    _Metric("start_first_sampled_s", "first_sampled_s", "s"),
)


def comparisons(starts: Sequence[Started], blocks: Sequence[Block]) -> list[Comparison]:
    """Returns every measured metric. A workload with an invalid block has none: failures are not averaged."""
    found: list[Comparison | None] = []
    by_workload: dict[RequestMix, list[Block]] = defaultdict(list)
    for block in blocks:
        by_workload[block.workload].append(block)
    for workload, mine in by_workload.items():
        if all(block.valid for block in mine):
            places = {(block.side, block.pair): block.measurements for block in mine}
            found += (_compare(metric, places, workload) for metric in _metrics(workload))
    by_start = {(start.side, start.pair): start for start in starts}
    found += (_compare(metric, by_start, None) for metric in STARTED)
    return [comparison for comparison in found if comparison]


def _metrics(workload: RequestMix) -> tuple[_Metric, ...]:
    if workload.probed:
        return _PROBED  # no others: the pings themselves cost the server CPU time
    if workload.engine == "stub":
        return _PACED if workload.steps_per_s and not workload.share else _CEILING
    return _STREAMED if workload.streamed else _WHOLE


def _name(metric: _Metric, workload: RequestMix) -> str:
    if metric in _CEILING:
        c = "" if workload.concurrency == 256 else f"_c{workload.concurrency}"
        tokens = "" if workload.tokens == 256 else f"_{workload.tokens}"
        return metric.name.format(c=c, tokens=tokens, free="" if workload.share else "_unheld")
    api = "" if workload.api == "chat" else f"{workload.api}_"
    if workload.sentences > 1:
        api = f"long_{api}"
    return metric.name.format(api=api, c=workload.concurrency)


def _compare(
    metric: _Metric, places: Mapping[tuple[str, int], object], workload: RequestMix | None
) -> Comparison | None:
    name = _name(metric, workload) if workload else metric.name
    pairs = []
    for (side, pair), ours in places.items():
        if side != "ours" or ("theirs", pair) not in places:
            continue
        values = (getattr(ours, metric.measurement), getattr(places["theirs", pair], metric.measurement))
        if None in values:
            return None
        pairs.append(values)
    return compare(name, pairs, metric.unit, better=metric.better, worst=metric.worst)
