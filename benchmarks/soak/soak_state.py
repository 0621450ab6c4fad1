"""Measures what a server holds at one moment, from /proc and from its own /metrics."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from psutil import CONN_LISTEN, Process

from benchmarks.lib.process_usage import ENGINE_TITLE, family, http_processes

# In this order: ours, or vLLM's own where it is `vllm serve`.
IN_FLIGHT = ("endpoint_requests_in_flight",)
IN_ENGINE = ("endpoint_requests_in_engine",)
TASKS = ("endpoint_loop_tasks",)
RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
TOKENS = "vllm:generation_tokens_total"
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Held:
    """Counts, and MB. `http` is the process that speaks HTTP, `core` the engine's.

    :ivar in_flight: requests accepted and not yet answered; `in_engine`: requests with a slot or in the queue for one.
    :ivar running: the core's own count of both, as of its last step.
    :ivar http_own, core_own: resident memory that is no file's: the kernel takes pages of files back when it likes.
    :ivar tasks: of the engine's event loop. The request that asks is not counted in `sockets` and `fds`.
    """

    in_flight: int
    in_engine: int
    running: int
    tasks: int
    threads: int
    sockets: int
    fds: int
    core_threads: int
    core_fds: int
    http_rss: float
    http_own: float
    core_rss: float
    core_own: float
    tokens: int

    @property
    def idle(self) -> bool:
        return not (self.in_flight or self.in_engine or self.running)


class StateWatch:
    """:raises LookupError: there is no such server."""

    def __init__(self, root: int, port: int) -> None:
        self._port = port
        http = http_processes(root, port)
        cores = [p for p in family(root) if " ".join(p.cmdline()).startswith(ENGINE_TITLE)]
        if not http or not cores:
            raise LookupError(f"process {root} has {len(http)} processes on port {port} and {len(cores)} engine cores")
        self.http, self.core = http[0], cores[0]

    @property
    def alive(self) -> bool:
        return self.http.is_running() and self.core.is_running()

    def look(self) -> Held:
        figures = metrics(self._port)

        def figure(names: tuple[str, ...]) -> int:
            return int(sum(figures.get(name, 0) for name in names))

        # After the connection of `metrics` has ended.
        return Held(
            figure(IN_FLIGHT),
            figure(IN_ENGINE),
            figure(RUNNING),
            figure(TASKS),
            self.http.num_threads(),
            sockets(self.http),
            self.http.num_fds(),
            self.core.num_threads(),
            self.core.num_fds(),
            *memory(self.http),
            *memory(self.core),
            figure((TOKENS,)),
        )


def memory(process: Process) -> tuple[float, float]:
    """All that is resident, and what of it is no file's."""
    found = process.memory_info()
    return found.rss / MB, (found.rss - found.shared) / MB


def sockets(process: Process) -> int:
    """TCP connections of clients."""
    return sum(c.status != CONN_LISTEN for c in process.net_connections("tcp"))


def metrics(port: int) -> Mapping[str, float]:
    """/metrics, each name summed over its labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics", headers={"Connection": "close"})
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found: dict[str, float] = {}
    for one in text_string_to_metric_families(text):
        for sample in one.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found
