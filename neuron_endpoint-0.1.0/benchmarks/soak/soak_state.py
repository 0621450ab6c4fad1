"""Measures what a server holds at one moment, from /proc and from its own /metrics."""

from __future__ import annotations

import http.client
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from psutil import CONN_LISTEN, Process

from benchmarks.lib.process_usage import ENGINE_TITLE, family, http_processes, title
from handler.engine.grammar.grammar_trial import PROGRAM

# A running server has the metrics of our container, or vLLM's own if it is `vllm serve`.
RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Held:
    """What a server holds. Memory is in MB. ``http`` is the process that speaks HTTP, ``core`` the engine's.

    :ivar in_flight: requests that were accepted and not yet answered.
    :ivar in_engine: requests that have a slot of the engine, or wait for one.
    :ivar running: the core's own count of both, as of its last step.
    :ivar tasks: the tasks of the engine's event loop.
    :ivar sockets: the TCP connections of clients, without that of the question for the metrics.
    :ivar fds: the descriptors of ``http``, without `trial_descriptors`.
    :ivar http_own: resident memory that is not of a file. The kernel may take back the pages of files at any time.
    :ivar core_own: the same of the core.
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
    """Measures a server.

    :param root: the process that was started.
    :raises LookupError: there is no such server.
    """

    def __init__(self, root: int, port: int) -> None:
        self._port = port
        http = http_processes(root, port)
        cores = [process for process in family(root) if title(process).startswith(ENGINE_TITLE)]
        if not http or not cores:
            raise LookupError(f"process {root} has {len(http)} processes on port {port} and {len(cores)} engine cores")
        self.http, self.core = http[0], cores[0]

    def look(self) -> Held:
        figures = metrics(self._port)  # The connection has ended before sockets and descriptors are counted.
        return Held(
            in_flight=int(figures["endpoint_requests_in_flight"]),
            in_engine=int(figures["endpoint_requests_in_engine"]),
            running=int(sum(figures[name] for name in RUNNING)),
            tasks=int(figures["endpoint_loop_tasks"]),
            threads=self.http.num_threads(),
            sockets=sum(one.status != CONN_LISTEN for one in self.http.net_connections("tcp")),
            fds=self.http.num_fds() - trial_descriptors(self.http),
            core_threads=self.core.num_threads(),
            core_fds=self.core.num_fds(),
            http_rss=self.http.memory_info().rss / MB,
            http_own=own_memory(self.http),
            core_rss=self.core.memory_info().rss / MB,
            core_own=own_memory(self.core),
            tokens=int(figures["vllm:generation_tokens_total"]),
        )


def trial_descriptors(http: Process) -> int:
    """Returns how many of a process's descriptors are to the process that tries grammars and to the children of that.

    One is to each: a socket to the process, a pipe to a child. They come and go with the grammars of requests.
    """
    return sum(len(family(child.pid)) for child in http.children() if PROGRAM in title(child))


def own_memory(process: Process) -> float:
    """Returns the resident memory that is not of a file, in MB."""
    found = process.memory_info()
    return (found.rss - found.shared) / MB


def metrics(port: int) -> Mapping[str, float]:
    """Returns the metrics of a server, each summed over its labels."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/metrics", headers={"Connection": "close"})
        text = connection.getresponse().read().decode()
    found: dict[str, float] = defaultdict(float)
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            found[sample.name] += sample.value
    return found
