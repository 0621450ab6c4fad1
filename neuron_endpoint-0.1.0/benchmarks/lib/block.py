"""Runs one block: one workload, once, against one server, with all measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from benchmarks.lib.contestant import Contestant
from benchmarks.lib.contestant_server import ContestantServer
from benchmarks.lib.cpu_share import held
from benchmarks.lib.load_generator import LoadResult
from benchmarks.lib.measurements import Measurements, measure
from benchmarks.lib.probe import Ping
from benchmarks.lib.request_mix import RequestMix


@dataclass(frozen=True, slots=True)
class Block:
    """The result of one block: one line of `bench.jsonl`."""

    side: str
    pair: int
    workload: RequestMix
    measurements: Measurements
    failures: dict[str, int]  # reason -> how often; a block with any is invalid
    began_unix: float
    load_average: float  # of the machine over the last minute, at the end: others may be at work on it
    record: str = "block"

    @property
    def valid(self) -> bool:
        return not self.failures


def run_block(server: ContestantServer, workload: RequestMix, pair: int) -> Block:
    """Runs the workload. Takes at most its deadline and half a minute."""
    began = time.time()
    before = server.usage()
    with held(server.http, workload.share), _probing(server.contestant, workload) as pings:
        result = _generate(server.contestant.port, workload)
    after = server.usage()
    first = min(sample.sent for sample in result.samples)
    last = max(sample.end for sample in result.samples)
    during = [ping for ping in pings if first <= ping.began <= last]
    failures = Counter(sample.error for sample in result.samples if sample.error)
    failures.update(f"/ping answered {ping.status}" for ping in during if ping.status != 200)
    return Block(
        side=server.contestant.name,
        pair=pair,
        workload=workload,
        measurements=measure(result, during, before, after),
        failures=dict(failures),
        began_unix=began,
        load_average=os.getloadavg()[0],
    )


def _generate(port: int, workload: RequestMix) -> LoadResult:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.lib.load_generator", str(port)],
        input=msgspec.json.encode(workload),
        stdout=subprocess.PIPE,
        timeout=workload.deadline_s + 30,
        check=True,
    )
    try:
        return msgspec.json.decode(done.stdout, type=LoadResult)
    except msgspec.DecodeError as error:
        ends = f"{done.stdout[:60]!r} ... {done.stdout[-60:]!r}"
        raise OSError(f"{len(done.stdout)} bytes of the load generator cannot be read ({error}): {ends}") from None


@contextmanager
def _probing(contestant: Contestant, workload: RequestMix) -> Iterator[list[Ping]]:
    """Yields a list that has the pings after the block has ended. Empty if the workload is not probed."""
    pings: list[Ping] = []
    if not workload.probed:
        yield pings
        return
    command = [sys.executable, "-m", "benchmarks.lib.probe", str(contestant.port), contestant.health]
    prober = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield pings
        output, _ = prober.communicate(timeout=15)  # closes its stdin, which ends it
        pings += msgspec.json.decode(output, type=list[Ping])
    finally:
        if prober.poll() is None:
            prober.kill()
            prober.wait()
