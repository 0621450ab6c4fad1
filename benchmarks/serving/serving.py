"""The serving benchmark: measures our container and `vllm serve` alternately under the same load."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from benchmarks.lib.block import Block, run_block
from benchmarks.lib.comparison import Started
from benchmarks.lib.contestant import KINDS, REAL, Contestant, EngineShape
from benchmarks.lib.contestant_server import ContestantServer
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.request_mix import Api, RequestMix
from handler.processes import free_port

T = TypeVar("T")

WARM_CONCURRENCY = 64
WARM_ROUNDS = 5
QUICK_PROBE_S = 5.0
PROBE_S = 15.0
CEILING_SHARE = 0.3
CEILING_STEPS = 400  # a second: 100,000 tokens, of 256 streams
LONG = 16  # sentences of a long prompt
STEADY = 0.1  # two warm-up rounds whose rates differ by less than this part


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. No pair is started that would end after `limit_s`, judged by the longest one so far."""

    workloads: tuple[RequestMix, ...]
    pairs: int
    restarts: bool
    limit_s: float
    shape: EngineShape = REAL


@dataclass(slots=True)
class Run:
    """The measurements so far."""

    starts: list[Started] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


class WarmUpFailed(Exception):
    """Requests failed before anything was measured."""

    def __init__(self, block: Block) -> None:
        super().__init__(f"warm-up of {block.side}, {block.workload.label}: {block.failures}")


def workloads(concurrency: tuple[int, ...], apis: tuple[Api, ...], *, quick: bool) -> tuple[RequestMix, ...]:
    """Returns streamed and whole replies for each API and concurrency. Quick: whole ones at 2 to 32, no long prompts.

    /ping is measured in a separate block of fixed duration, at 64 concurrent requests or the highest number. The pings
    cost CPU time that the other blocks measure, and a p99 needs more pings than fit into those.
    """
    found = []
    for api in apis:
        for c in sorted(concurrency):
            plain = RequestMix(api=api, concurrency=c, requests=max(192, 2 * c) if c >= 8 else 24 * c)
            found.append(plain)
            if not quick or 1 < c <= 32:
                found.append(replace(plain, streamed=False))
    if not quick:
        found += (RequestMix(concurrency=c, requests=96 if c > 1 else 24, sentences=LONG) for c in (1, 32))
    seconds = QUICK_PROBE_S if quick else PROBE_S
    probed = 64 if 64 in concurrency else max(concurrency)
    found.append(RequestMix(concurrency=probed, requests=1_000_000, seconds=seconds, probed=True))
    return tuple(found)


def stub_workloads(*, quick: bool, share: float | None = None) -> tuple[RequestMix, ...]:
    """Returns streamed chat workloads on the stub, at rates that saturate the front end and at rates that do not.

    :param share: the share of a core to which the HTTP process is limited when its maximum is measured. With a whole
        core, the engine's core process and the load generator saturate first. None: limits are not possible here.
    """
    free = RequestMix(engine="stub", concurrency=256, requests=256 if quick else 768, tokens=256)
    ceiling = free if share is None else replace(free, share=share, steps_per_s=CEILING_STEPS)
    found = [ceiling, replace(ceiling, requests=256 if quick else 1024, tokens=64)]
    if share is not None:
        found.append(free)
    if not quick:
        found.append(replace(ceiling, concurrency=64, requests=384))
    for c in (256,) if quick else (64, 256):
        found.append(replace(free, concurrency=c, requests=c, tokens=128, steps_per_s=50))
    return tuple(found)


def contestants(
    ours: str, theirs: str, model: Path, scratch: Path, shape: EngineShape = REAL
) -> tuple[Contestant, Contestant]:
    return (
        KINDS[ours]("ours", free_port(), model, scratch, shape),
        KINDS[theirs]("theirs", free_port(), model, scratch, shape),
    )


def run(plan: Plan, sides: tuple[Contestant, ...], report: BenchmarkReport, into: Run) -> None:
    """Measures pair by pair, ours and theirs alternately, and adds the results to `into`.

    Every other pair starts with theirs, so that an advantage of the second position affects both. Normally both servers
    are started once, and one is idle while the other is under load. With `restarts`, every pair restarts both, one at a
    time.
    """
    began = time.monotonic()
    longest = 0.0
    with ExitStack() as stack:
        servers = [] if plan.restarts else [_open(stack, plan, side, 0, report, into) for side in sides]
        for pair in range(plan.pairs):
            pair_began = time.monotonic()
            if pair_began - began + longest > plan.limit_s:
                report.alarm(f"out of time: {pair} of {plan.pairs} pairs in {pair_began - began:.0f} s")
                return
            for block in _restarted(plan, sides, pair, report, into) if plan.restarts else _pair(plan, servers, pair):
                into.blocks.append(block)
                report.block(block)
            longest = max(longest, time.monotonic() - pair_began)


def _pair(plan: Plan, servers: Sequence[ContestantServer], pair: int) -> Iterator[Block]:
    for workload in plan.workloads:
        for server in in_turn(servers, pair):
            yield run_block(server, workload, pair)


def _restarted(
    plan: Plan, sides: Sequence[Contestant], pair: int, report: BenchmarkReport, into: Run
) -> Iterator[Block]:
    for side in in_turn(sides, pair):
        with ExitStack() as stack:
            server = _open(stack, plan, side, pair, report, into)
            for workload in plan.workloads:
                yield run_block(server, workload, pair)


def in_turn(sides: Sequence[T], pair: int) -> Sequence[T]:
    return sides[::-1] if pair % 2 else sides


def _open(
    stack: ExitStack, plan: Plan, side: Contestant, pair: int, report: BenchmarkReport, into: Run
) -> ContestantServer:
    """Starts a server, records how long each step took, and warms it up."""
    log = f"bench-{side.name}.log" if plan.shape.worker is None else f"bench-stub-{side.name}.log"
    server, started = first_sample(stack, side, pair, report, log)
    if plan.shape.worker is None:  # the stub has no model to load, so its start is not measured
        into.starts.append(started)
        report.line(started)
    _warm_up(server, report)
    return server


def first_sample(
    stack: ExitStack, side: Contestant, pair: int, report: BenchmarkReport, log: str
) -> tuple[ContestantServer, Started]:
    """Starts a server, and sends it a request that samples."""
    report.say(f"starting {side.name} at http://127.0.0.1:{side.port}: {' '.join(side.command)}")
    server = stack.enter_context(ContestantServer(side, report.out.parent / log))
    first = _warm_block(server, RequestMix(concurrency=1, requests=1, tokens=8, temperature=1.0))
    sampled_s = time.monotonic() - server.began
    s = server.start
    report.say(
        f"{side.name}: port {s.port_s:.1f} s, /ping {s.ping_s:.1f} s, ready {s.ready_s:.1f} s,"
        f" first sampled reply {sampled_s:.1f} s ({first.measurements.wall_s:.1f} s of it the request)"
    )
    return server, Started(side.name, pair, s.port_s, s.ping_s, s.ready_s, sampled_s)


def _warm_up(server: ContestantServer, report: BenchmarkReport) -> None:
    """Sends greedy and sampled requests until the greedy rate is steady. Sampling is compiled at its first use."""
    rates: list[float] = []
    for _ in range(WARM_ROUNDS):
        for temperature in (1.0, 0.0):
            load = RequestMix(concurrency=WARM_CONCURRENCY, requests=64, temperature=temperature)
            rates.append(_warm_block(server, load).measurements.tokens_per_s)
        if len(rates) >= 4 and abs(rates[-1] / rates[-3] - 1) < STEADY:
            break
    else:
        report.alarm(f"{server.contestant.name}: not steady after {WARM_ROUNDS} rounds of warm-up")
    report.say(
        f"{server.contestant.name}: warm, " + ", ".join(f"{rate:.0f}" for rate in rates[1::2]) + " tokens/s greedy"
    )


def _warm_block(server: ContestantServer, workload: RequestMix) -> Block:
    block = run_block(server, workload, -1)
    if not block.valid:
        raise WarmUpFailed(block)
    return block
