"""Which figures a run has: the ids of `bench.json`, each with the measurement behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.lib.block import Block
from benchmarks.lib.figures import Comparison, compare
from benchmarks.lib.request_mix import RequestMix


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str  # {api} is empty for chat, {c} the concurrency
    measurement: str
    unit: str
    better: str = "less"
    worst: bool = False


_STREAMED = (
    _Figure("{api}stream_tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Figure("{api}stream_rps_c{c}", "requests_per_s", "requests/s", "more"),
    _Figure("{api}ttft_p50_c{c}", "ttft_p50_ms", "ms"),
    _Figure("{api}ttft_p95_c{c}", "ttft_p95_ms", "ms"),
    _Figure("{api}itl_p50_c{c}", "itl_p50_ms", "ms"),
    _Figure("{api}itl_p99_c{c}", "itl_p99_ms", "ms"),
    _Figure("{api}cpu_per_token_stream_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Figure("{api}core_busy_stream_c{c}", "core_busy", "cores"),
)
_WHOLE = (
    _Figure("{api}tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Figure("{api}rps_c{c}", "requests_per_s", "requests/s", "more"),
    _Figure("{api}latency_p50_c{c}", "latency_p50_ms", "ms"),
    _Figure("{api}cpu_per_token_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Figure("{api}core_busy_c{c}", "core_busy", "cores"),
)
_PROBED = (
    _Figure("ping_p50_ms", "ping_p50_ms", "ms"),
    _Figure("ping_p99_ms", "ping_p99_ms", "ms"),
    _Figure("ping_max_ms", "ping_max_ms", "ms", worst=True),
    _Figure("rss", "rss_mb", "MB"),
    _Figure("tree_rss", "tree_rss_mb", "MB"),
)


# On the stub. {tokens} is empty for replies of 256 tokens, {c} for 256 requests at once, {free} where the HTTP process
# is held to a share of a core.
_CEILING = (
    _Figure("ceiling_stub{c}{tokens}{free}", "tokens_per_s", "tokens/s", "more"),
    _Figure("ceiling_cpu_per_token{c}{tokens}{free}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
    _Figure("ceiling_core_busy{c}{tokens}{free}", "core_busy", "cores"),
)
_PACED = (
    _Figure("stub_tps_c{c}", "tokens_per_s", "tokens/s", "more"),
    _Figure("stub_ttft_p50_c{c}", "ttft_p50_ms", "ms"),
    _Figure("stub_itl_p99_c{c}", "itl_p99_ms", "ms"),
    _Figure("stub_cpu_per_token_c{c}", "cpu_s_per_1000_tokens", "CPU s / 1,000 tokens"),
)


@dataclass(frozen=True, slots=True)
class Started:
    """One start of one side, in seconds since its process was begun."""

    side: str
    pair: int
    port_s: float
    ping_s: float
    ready_s: float
    first_sampled_s: float  # to the end of the first reply that was sampled; with vLLM that one compiles
    record: str = "start"


_STARTED = (
    _Figure("start_port_s", "port_s", "s"),
    _Figure("start_ping_s", "ping_s", "s"),
    _Figure("start_ready_s", "ready_s", "s"),
    _Figure("start_first_sampled_s", "first_sampled_s", "s"),
)


def comparisons(starts: Sequence[Started], blocks: Sequence[Block]) -> list[Comparison]:
    """Every figure that was measured; a workload with an invalid block has none: no failure is averaged."""
    found: list[Comparison | None] = []
    by_workload: dict[RequestMix, list[Block]] = defaultdict(list)
    for block in blocks:
        by_workload[block.workload].append(block)
    for workload, mine in by_workload.items():
        if all(block.valid for block in mine):
            places = {(block.side, block.pair): block.measurements for block in mine}
            found += (_compare(figure, places, workload) for figure in _figures(workload))
    by_start = {(start.side, start.pair): start for start in starts}
    found += (_compare(figure, by_start, None) for figure in _STARTED)
    return [comparison for comparison in found if comparison]


def _figures(workload: RequestMix) -> tuple[_Figure, ...]:
    if workload.probed:
        return _PROBED  # no others: the questions themselves cost the server something
    if workload.engine == "stub":
        return _PACED if workload.steps_per_s and not workload.share else _CEILING
    return _STREAMED if workload.streamed else _WHOLE


def _name(figure: _Figure, workload: RequestMix) -> str:
    if figure in _CEILING:
        c = "" if workload.concurrency == 256 else f"_c{workload.concurrency}"
        tokens = "" if workload.tokens == 256 else f"_{workload.tokens}"
        return figure.name.format(c=c, tokens=tokens, free="" if workload.share else "_unheld")
    api = "" if workload.api == "chat" else f"{workload.api}_"
    if workload.sentences > 1:
        api = f"long_{api}"
    return figure.name.format(api=api, c=workload.concurrency)


def _compare(
    figure: _Figure, places: Mapping[tuple[str, int], object], workload: RequestMix | None
) -> Comparison | None:
    name = _name(figure, workload) if workload else figure.name
    pairs = []
    for (side, pair), ours in places.items():
        if side != "ours" or ("theirs", pair) not in places:
            continue
        values = (getattr(ours, figure.measurement), getattr(places["theirs", pair], figure.measurement))
        if None in values:
            return None
        pairs.append(values)
    return compare(name, pairs, figure.unit, better=figure.better, worst=figure.worst)
