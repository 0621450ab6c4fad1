"""`python -m benchmarks ping`: how long GET /ping takes, from the bind of the port on, and while clients attack."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

import click

from benchmarks.lib.contestant import SAMPLE_MODEL, container
from handler.processes import free_port

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
INTERVAL_S = 0.01
ATTACK_S = 5.0
START_S = 100.0
HELD = 500  # connections of an attacker


class Pinger:
    """Asks /ping on a new connection every `INTERVAL_S`.

    :ivar times: seconds of each answer.
    :ivar failed: questions without an answer: their time and why.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.times: list[float] = []
        self.failed: list[str] = []

    def ask(self) -> int:
        """The status; 0 without an answer."""
        began = time.perf_counter()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10.0) as connection:
                connection.sendall(PING)
                status = int(connection.recv(4096).split()[1])
        except (OSError, IndexError) as error:
            self.failed.append(f"{time.perf_counter() - began:.3f} s: {error!r}")
            return 0
        self.times.append(time.perf_counter() - began)
        return status

    def until(self, done: Callable[[int], bool]) -> None:
        while not done(self.ask()):
            time.sleep(INTERVAL_S)

    def take(self, name: str) -> dict[str, object]:
        cuts = quantiles(self.times, n=1000)
        row = {
            "phase": name,
            "pings": len(self.times),
            "failed": self.failed,
            "p50_ms": round(cuts[499] * 1000, 2),
            "p99_ms": round(cuts[989] * 1000, 2),
            "max_ms": round(max(self.times) * 1000, 2),
        }
        self.times, self.failed = [], []
        return row


def _flood(port: int, first: bytes) -> None:
    """Opens connections that send `first`, and holds the last 500 of them. Runs in a process of its own."""
    held: deque[socket.socket] = deque()
    while True:
        try:
            held.append(socket.create_connection(("127.0.0.1", port), 1.0))
            held[-1].sendall(first)
        except OSError:
            continue
        if len(held) > HELD:
            held.popleft().close()


@click.command("ping")
def ping_times() -> None:
    """Starts the sample model and prints one line of JSON for the start and for each attack."""
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "log").open("wb") as log:
        served = container("ours", port, SAMPLE_MODEL, Path(scratch))
        environment = {**os.environ, **served.environment, "ENDPOINT_MAX_CONCURRENT": "4"}
        server = subprocess.Popen(served.command, env=environment, stdout=log, stderr=log)
        try:
            pinger = Pinger(port)
            deadline = time.monotonic() + START_S
            pinger.until(lambda status: status != 0 or time.monotonic() > deadline)
            pinger.failed = []
            pinger.until(lambda status: status == 200 or time.monotonic() > deadline)
            if time.monotonic() > deadline:
                raise click.ClickException((Path(scratch) / "log").read_text()[-2000:])
            click.echo(json.dumps(pinger.take("start")))
            for name, first in (
                ("incomplete heads", b"P"),
                ("requests", b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"),
            ):
                flood = multiprocessing.Process(target=_flood, args=(port, first), daemon=True)
                flood.start()
                end = time.monotonic() + ATTACK_S
                pinger.until(lambda status, end=end: time.monotonic() > end)  # type: ignore[misc]
                flood.kill()
                flood.join()
                click.echo(json.dumps(pinger.take(name)))
        finally:
            server.terminate()
            server.wait(60)
