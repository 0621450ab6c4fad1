"""Arithmetic on known numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.lib.block import Block
from benchmarks.lib.comparison import Started, comparisons
from benchmarks.lib.load_generator import LoadResult
from benchmarks.lib.measurements import Measurements, alone, compare, interval, measure, percentile
from benchmarks.lib.probe import Ping
from benchmarks.lib.process_usage import Usage
from benchmarks.lib.request_mix import RequestMix
from benchmarks.lib.sample import Sample
from benchmarks.serving.start_times import seconds_of


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 50, 2.5),
        ([float(n) for n in range(101)], 95, 95.0),
        ([0.0, 10.0], 99, 9.9),
        ([1.0, 2.0], 100, 2.0),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float | None) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_the_ratio_is_the_median_of_the_ratios_of_pairs() -> None:
    # the machine slows down threefold after the second pair: the ratios of pairs do not notice
    found = compare("tps", [(120.0, 100.0), (130.0, 100.0), (40.0, 32.0)], "tokens/s", better="more")
    assert found is not None
    assert (found.ours, found.theirs) == (120.0, 100.0)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.25, 1.2, 1.3))
    assert found.pairs == 3


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (9, 2, 8), (12, 3, 10)])
def test_the_interval_of_the_median_by_ranks(count: int, low: int, high: int) -> None:
    # binomial(12, 1/2): two or fewer in 1.9 % of cases, three or fewer in 7.3 %; so the 3rd and the 10th
    assert interval([float(n) for n in range(count, 0, -1)]) == (low, high)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_pairs_have_no_interval(count: int) -> None:
    assert interval([1.0] * count) is None


def test_a_maximum_is_shown_as_the_largest_of_all_pairs() -> None:
    found = compare("max", [(10.0, 20.0), (90.0, 30.0), (10.0, 40.0)], "ms", worst=True)
    assert found is not None
    assert (found.ours, found.theirs, found.ratio) == (90.0, 40.0, 0.5)


def test_nothing_is_invented() -> None:
    assert compare("tps", [], "ms") is None
    assert compare("tps", [(1.0, 0.0)], "ms") is None


def test_measurements_of_a_block() -> None:
    samples = (
        Sample(sent=10.0, end=11.0, status=200, tokens=4, events=3, arrivals=(10.2, 10.3, 10.5)),
        Sample(sent=10.5, end=12.0, status=200, tokens=4, events=1, arrivals=(10.9,)),
    )
    pings = [Ping(10.0, 0.002, 200), Ping(10.1, 0.004, 200)]
    got = measure(LoadResult(samples, 2, 0.1), pings, Usage(1.0, 0, 0), Usage(1.5, 3_000_000, 9_000_000))
    assert (got.wall_s, got.tokens, got.tokens_per_s, got.requests_per_s) == pytest.approx((2.0, 8, 4.0, 1.0))
    assert got.cpu_s_per_1000_tokens == pytest.approx(62.5)
    assert (got.rss_mb, got.tree_rss_mb, got.tokens_per_event) == (3.0, 9.0, 2.0)
    assert (got.ttft_p50_ms, got.itl_p50_ms) == pytest.approx((300.0, 150.0))
    assert (got.pings, got.ping_p50_ms, got.ping_max_ms) == pytest.approx((2, 3.0, 4.0))


def test_a_failed_request_counts_for_nothing() -> None:
    samples = (Sample(0.0, 1.0, 200, tokens=4), Sample(0.0, 2.0, 500, tokens=4, error="status 500"))
    got = measure(LoadResult(samples, 2, 0.1), [], Usage(0, 0, 0), Usage(0, 0, 0))
    assert (got.tokens, got.requests_per_s, got.ttft_p50_ms, got.ping_p99_ms) == (4, 0.5, None, None)


def block(side: str, pair: int, tps: float, workload: RequestMix, **failures: int) -> Block:
    sample = Sample(0.0, 1.0, 200, tokens=4, events=2, arrivals=(0.25, 0.5))
    pings = [Ping(0.0, 0.001, 200)] if workload.probed else []
    plain: Measurements = measure(LoadResult((sample,), 1, 0.0), pings, Usage(1, 0, 0), Usage(2, 8, 9))
    return Block(side, pair, workload, replace(plain, tokens_per_s=tps), failures, 0.0, 0.0)


def test_the_figures_of_a_run_have_the_ids_of_the_bars() -> None:
    workloads = [
        RequestMix(),
        RequestMix(streamed=False),
        RequestMix(api="completion", concurrency=1),
        RequestMix(probed=True),
    ]
    blocks = [
        block(side, pair, tps, workload)
        for pair in range(2)
        for workload in workloads
        for side, tps in (("ours", 150.0), ("theirs", 100.0))
    ]
    starts = [Started("ours", 0, 1.0, 2.0, 20.0, 21.0), Started("theirs", 0, 10.0, 10.0, 10.0, 28.0)]
    found = {c.figure: c for c in comparisons(starts, blocks)}
    bars = {"stream_tps_c32", "tps_c32", "cpu_per_token_stream_c32", "ttft_p50_c32", "itl_p99_c32"}
    assert bars | {"ping_p99_ms", "ping_max_ms", "rss", "completion_ttft_p50_c1", "start_port_s"} <= set(found)
    assert (found["stream_tps_c32"].ratio, found["stream_tps_c32"].pairs) == (1.5, 2)
    assert (found["start_ready_s"].ratio, found["start_ready_s"].pairs) == (2.0, 1)


def test_an_invalid_block_takes_the_figures_of_its_workload() -> None:
    streamed, whole = RequestMix(), RequestMix(streamed=False)
    blocks = [block(side, pair, 1.0, w) for pair in range(2) for w in (streamed, whole) for side in ("ours", "theirs")]
    blocks[2] = replace(blocks[2], failures={"status 500": 1})
    assert not blocks[2].valid
    names = {c.figure for c in comparisons([], blocks)}
    assert "stream_tps_c32" in names
    assert "tps_c32" not in names


def test_figures_of_the_stub_have_names_of_their_own() -> None:
    unpaced = RequestMix(engine="stub", concurrency=256, tokens=256)
    workloads = {
        "ceiling_stub": replace(unpaced, share=0.3, steps_per_s=400),
        "ceiling_stub_64": replace(unpaced, share=0.3, steps_per_s=400, tokens=64),
        "ceiling_stub_c64": replace(unpaced, share=0.3, steps_per_s=400, concurrency=64),
        "ceiling_stub_unheld": unpaced,
        "stub_tps_c64": replace(unpaced, concurrency=64, steps_per_s=50),
    }
    for name, workload in workloads.items():
        blocks = [block("ours", 0, 300.0, workload), block("theirs", 0, 100.0, workload)]
        found = {one.figure: one.ratio for one in comparisons([], blocks)}
        assert found[name] == 3.0
        assert not {"stream_tps_c64", "stream_tps_c256"} & set(found)


def test_a_figure_without_another_side_has_no_ratio() -> None:
    found = alone("setup_s", [0.5, 0.3, 0.4], "s")
    assert (found.ours, found.theirs, found.ratio, found.pairs, found.low) == (0.4, None, None, 3, None)


def test_the_time_of_the_set_up_is_read_from_the_log() -> None:
    line = b'{"event": "stage", "stage": "%s", "seconds": 0.1, "since_start_seconds": 0.44}\n'
    assert seconds_of(line % b"check configuration") == 0.44
    others = (line % b"bind port", b"INFO x: check configuration", b"[1]", b"null")
    assert [seconds_of(other) for other in others] == [None] * 4
