"""Measures how tokens/s scale with the number of front ends, on a stub engine, with the CPU time of each process.

On two cores the load generator, the engine's core process and the front ends need more CPU than there is. So it is
measured twice: with the whole machine, and with each front end limited to a share of a core by the kernel (cgroup,
`cpu.cfs_quota_us`). The second shows how front ends scale on a machine with idle cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click
from psutil import Process

from benchmarks.lib import process_usage as processes
from benchmarks.lib.block import run_block
from benchmarks.lib.contestant import SAMPLE_MODEL, STUB, container
from benchmarks.lib.contestant_server import ContestantServer
from benchmarks.lib.cpu_share import GROUPS, can_hold, held
from benchmarks.lib.measurements import Comparison, compare
from benchmarks.lib.report import BenchmarkReport
from benchmarks.lib.request_mix import RequestMix
from container.server import acceptor_process
from handler.processes import free_port

SETTING = "SAGEMAKER_MODEL_SERVER_WORKERS"
ALL = 256
WHOLE = RequestMix(engine="stub", concurrency=ALL, requests=1024, tokens=256)
SHARE = 0.25
# At a pace that no held front end can follow. An engine left free makes many small steps where few requests reach it.
HELD = RequestMix(engine="stub", concurrency=ALL, requests=768, tokens=256, steps_per_s=400)


@dataclass(frozen=True, slots=True)
class Point:
    """The result of one block. CPU is in cores, over the block's wall time.

    :param share: the share of a core to which each front end was limited. None means no limit.
    :param streams: the streams of all front ends together.
    :param front_ends_cpu: the CPU of each front end, the busiest first.
    """

    front_ends: int
    share: float | None
    streams: int
    block: int
    tokens_per_s: float
    failures: dict[str, int]
    front_ends_cpu: tuple[float, ...]
    leader_cpu: float
    core_cpu: float
    client_cpu: float
    load_average: float
    record: str = "front_ends"


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a server's processes. A single process is both leader and front end."""

    front_ends: list[Process]
    leader: Process | None
    core: Process

    @classmethod
    def of(cls, server: ContestantServer) -> Roles:
        family = processes.family(server.pid)
        core = next(one for one in family if processes.title(one).startswith(processes.ENGINE_TITLE))
        owner = core.parent()
        workers = [child for child in family[0].children() if child.name() != acceptor_process.NAME]
        others = [one for one in workers if one != owner]
        return cls(others, owner, core) if others else cls(workers, None, core)


def measured(server: ContestantServer, count: int, share: float | None, streams: int, block: int) -> Point:
    workload = WHOLE if share is None else HELD
    workload = replace(workload, concurrency=streams, requests=workload.requests * streams // workload.concurrency)
    roles = Roles.of(server)
    watched = [*roles.front_ends, roles.core, *([roles.leader] if roles.leader else [])]
    before = [processes.cpu_s(process) for process in watched]
    with held(roles.front_ends, share):
        done = run_block(server, workload, block)
    wall = done.measurements.wall_s
    used = [(processes.cpu_s(process) - earlier) / wall for process, earlier in zip(watched, before, strict=True)]
    return Point(
        count,
        share,
        streams,
        block,
        done.measurements.tokens_per_s,
        done.failures,
        tuple(sorted(used[: len(roles.front_ends)], reverse=True)),
        used[-1] if roles.leader else 0.0,
        used[len(roles.front_ends)],
        done.measurements.client_cpu_s / wall,
        os.getloadavg()[0],
    )


def description(point: Point) -> str:
    each = " + ".join(f"{cpu:.2f}" for cpu in point.front_ends_cpu)
    where = "" if point.share is None else f", each held to {point.share:g} of a core"
    return (
        f"{point.front_ends} front ends{where}, {point.streams} streams: {point.tokens_per_s:.0f} tokens/s;"
        f" cores used: front ends {each}, leader {point.leader_cpu:.2f}, core {point.core_cpu:.2f},"
        f" client {point.client_cpu:.2f}"
    )


def compared(points: Sequence[Point], count: int, share: float | None, *, alike: bool = False) -> Comparison | None:
    """Compares `count` front ends with one, block by block.

    :param alike: give the single front end as many streams as each of the several has, instead of all streams.
    """
    streams = ALL // count if alike else ALL
    here = [point for point in points if point.share == share]
    ones = {point.block: point.tokens_per_s for point in here if (point.front_ends, point.streams) == (1, streams)}
    others = {point.block: point.tokens_per_s for point in here if (point.front_ends, point.streams) == (count, ALL)}
    pairs = [(rate, ones[block]) for block, rate in others.items() if block in ones]
    name = {2: "two_front_ends", 3: "three_front_ends"}.get(count, f"front_ends_{count}")
    name += "_unheld" if share is None else "_alike" if alike else ""
    return compare(name, pairs, "tokens/s", better="more")


@click.command("front-ends")
@click.option("--most", default=3, show_default=True, type=click.IntRange(2), help="The largest number of front ends.")
@click.option("--blocks", default=5, show_default=True, type=click.IntRange(1), help="Blocks of each kind and number.")
@click.option(
    "--share", default=SHARE, show_default=True, type=float, help="The share of a core for each limited front end."
)
@click.option(
    "--model",
    default=SAMPLE_MODEL,
    show_default="the sample's",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--out", default=Path("build/bench-front-ends.json"), show_default=True, type=click.Path(path_type=Path))
def front_ends(most: int, blocks: int, share: float, model: Path, out: Path) -> None:
    """Measure tokens/s of 1, 2, 3 ... front ends on a stub engine, with the CPU time of each process."""
    report = BenchmarkReport(out)
    try:
        found, points = measure_front_ends(most, blocks, share, model, report)
    except FrontEndsFailed as error:
        report.alarm(str(error))
        raise SystemExit(1) from None
    report.finish(found, "several front ends (ours) against one (theirs)")
    for one in sorted({point.share for point in points}, key=lambda one: one or 0):
        for count in range(1, most + 1):
            alike = [point for point in points if (point.share, point.front_ends, point.streams) == (one, count, ALL)]
            report.say(description(middle(alike)))


class FrontEndsFailed(Exception):
    """Requests have failed, so the rates are invalid."""


def measure_front_ends(
    most: int, blocks: int, share: float, model: Path, report: BenchmarkReport
) -> tuple[list[Comparison], list[Point]]:
    """Measures 1 to `most` front ends alternately, block by block.

    :param share: the share of a core to which each front end is limited, where that is possible.
    :raises FrontEndsFailed: requests failed.
    :raises ServerFailed: a server did not start.
    """
    points = list[Point]()
    shares: list[float | None] = [None]
    if can_hold():
        shares.append(share)
    else:
        report.alarm(f"{GROUPS} cannot be written: nothing is held to a share of a core")
    with ExitStack() as stack:
        servers = [_started(stack, count, model, report.out) for count in range(1, most + 1)]
        for block in range(-1, blocks):  # the first warms up
            for one in shares:
                for count, server, streams in _turns(servers, one):
                    point = measured(server, count, one, streams, block)
                    report.line(asdict(point))
                    if block >= 0:
                        points.append(point)
                        report.say(description(point))
    if any(point.failures for point in points):
        raise FrontEndsFailed("INVALID: requests have failed")
    found = [
        compared(points, count, one, alike=alike)
        for one in shares
        for count in range(2, most + 1)
        for alike in (False, *([] if one is None else [True]))
    ]
    return [comparison for comparison in found if comparison], points


def _turns(servers: Sequence[ContestantServer], share: float | None) -> Iterator[tuple[int, ContestantServer, int]]:
    """Yields each number of front ends with all streams. With a limit, one front end also runs with its part."""
    for count, server in enumerate(servers, 1):
        yield count, server, ALL
        if count > 1 and share is not None:
            yield 1, servers[0], ALL // count


def _started(stack: ExitStack, count: int, model: Path, out: Path) -> ContestantServer:
    scratch = Path(stack.enter_context(TemporaryDirectory()))
    plain = container("ours", free_port(), model, scratch, STUB)
    contestant = replace(plain, environment={**plain.environment, SETTING: str(count)})
    return stack.enter_context(ContestantServer(contestant, out.parent / f"bench-front-ends-{count}.log"))


def middle(points: Sequence[Point]) -> Point:
    """Returns the block with the median rate."""
    rate = median(point.tokens_per_s for point in points)
    return min(points, key=lambda point: abs(point.tokens_per_s - rate))
