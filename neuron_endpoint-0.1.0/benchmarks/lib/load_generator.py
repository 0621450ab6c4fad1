"""The load generator: a separate process with one thread and uvloop.

`python -m benchmarks.lib.load_generator PORT` reads a workload (JSON) from stdin, runs it once and writes a
`LoadResult` to stdout.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from benchmarks.lib.http_client import ClientReply, Connection
from benchmarks.lib.reply_reader import BrokenReply
from benchmarks.lib.request_mix import RequestMix
from benchmarks.lib.sample import Sample, read_reply

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LoadResult:
    samples: tuple[Sample, ...]
    connections: int  # opened in all; more than `concurrency` means the server does not keep them
    client_cpu_s: float  # of the generator while the load ran: near the wall time, it measures itself


class _Load:
    """One run of a workload; a slot takes the next index when its last request has ended."""

    def __init__(self, workload: RequestMix, port: int) -> None:
        self.workload = workload
        self.port = port
        self.indices = self._indices()
        self.replies: list[ClientReply] = []
        self.failures: list[Sample] = []
        self.connections = 0

    async def run(self) -> None:
        slots = [asyncio.create_task(self._run_slot()) for _ in range(self.workload.concurrency)]
        await asyncio.wait(slots, timeout=self.workload.deadline_s)
        for slot in slots:
            slot.cancel()
        outcomes = await asyncio.gather(*slots, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        now = time.monotonic()
        for _ in self.indices:
            self.failures.append(Sample(now, now, 0, error="not sent before the deadline"))

    def _indices(self) -> Iterator[int]:
        end = time.monotonic() + self.workload.seconds if self.workload.seconds else math.inf
        for index in range(self.workload.requests):
            if time.monotonic() > end:
                return
            yield index

    async def _run_slot(self) -> None:
        connection: Connection | None = None
        try:
            for index in self.indices:
                sent = time.monotonic()
                try:
                    if connection is None or not connection.usable:
                        self.connections += 1
                        connection = await Connection.open(HOST, self.port)
                    reply = await connection.post(self.workload.path, self.workload.body(index))
                except (OSError, BrokenReply) as error:
                    self._fail(sent, f"{type(error).__name__}: {error}")
                except asyncio.CancelledError:
                    self._fail(sent, "not answered before the deadline")
                    raise
                else:
                    reply.sent = sent  # a connection that had to be opened is part of the wait
                    self.replies.append(reply)
        finally:
            if connection is not None:
                connection.close()

    def _fail(self, sent: float, reason: str) -> None:
        self.failures.append(Sample(sent, time.monotonic(), 0, error=reason))


async def run_load(workload: RequestMix, port: int) -> LoadResult:
    """Runs to the end or to the deadline. Requests that are not answered by then count as failures."""
    load = _Load(workload, port)
    cpu = time.process_time()
    await load.run()
    cpu = time.process_time() - cpu
    samples = [*(read_reply(reply, workload) for reply in load.replies), *load.failures]
    return LoadResult(tuple(samples), load.connections, cpu)


def main() -> None:
    import uvloop

    workload = msgspec.json.decode(sys.stdin.buffer.read(), type=RequestMix)
    result = uvloop.run(run_load(workload, int(sys.argv[1])))
    # With PYTHONUNBUFFERED, stdout's own write may write only a part without an error.
    rest = memoryview(msgspec.json.encode(result))
    os.set_blocking(1, True)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
