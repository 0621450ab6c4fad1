"""Finds the processes of a server, measures their CPU time and memory, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from psutil import CONN_LISTEN, Error, NoSuchProcess, Process, wait_procs

T = TypeVar("T")

# The name of the container's process that accepts connections (container/server/acceptor_process.py).
ACCEPTOR = "acceptor"
ENGINE_TITLE = "VLLM::"  # the process title vLLM gives to its engine core and workers
GRACE_S = 3.0  # that descendants have to follow the first of them


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage. It is that of the HTTP processes, unless stated otherwise."""

    cpu_s: float  # user and system, since they began
    rss_bytes: int
    tree_rss_bytes: int  # of every process of the server; shared pages count once for each
    core_cpu_s: float = 0.0  # of the engine's core


def family(root: int) -> list[Process]:
    """Returns the process and all its living descendants."""
    try:
        process = Process(root)
        return [process, *process.children(recursive=True)]
    except NoSuchProcess:
        return []


def http_processes(root: int, port: int) -> list[Process]:
    """Returns the processes that hold the listening socket and have no descendant that does, except the engine's.

    gunicorn's master holds the socket, but its workers serve requests. A forked engine core may hold a copy. Our
    acceptor, which only passes connections on, comes last.
    """
    holders = {
        process.pid: process
        for process in family(root)
        if not title(process).startswith(ENGINE_TITLE) and _listens(process, port)
    }
    ancestors = {parent.pid for process in holders.values() for parent in process.parents()}
    found = [process for pid, process in holders.items() if pid not in ancestors]
    return sorted(found, key=lambda process: process.name() == ACCEPTOR)


def usage(root: int, http: Sequence[Process]) -> Usage:
    every = family(root)
    cores = [process for process in every if title(process).startswith(ENGINE_TITLE)]
    return Usage(
        cpu_s=sum(map(cpu_s, http)),
        rss_bytes=sum(map(rss, http)),
        tree_rss_bytes=sum(_or(0, rss, process) for process in every),
        core_cpu_s=sum(_or(0.0, cpu_s, process) for process in cores),
    )


def cpu_s(process: Process) -> float:
    """Returns the CPU time of a process, user and system, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def rss(process: Process) -> int:
    return int(process.memory_info().rss)


def title(process: Process) -> str:
    return _or("", lambda p: " ".join(p.cmdline()), process)


def end(processes: Sequence[Process], patience_s: float) -> None:
    """Sends SIGTERM to the first process, and SIGKILL to all that remain after `patience_s`."""
    if not processes:
        return
    with suppress(NoSuchProcess):
        processes[0].terminate()
    wait_procs(processes[:1], timeout=patience_s)
    _, alive = wait_procs(processes, timeout=GRACE_S)
    for process in alive:
        with suppress(NoSuchProcess):
            process.kill()
    wait_procs(alive, timeout=5)


def _listens(process: Process, port: int) -> bool:
    def listens(process: Process) -> bool:
        return any(c.status == CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp"))

    return _or(False, listens, process)


def _or(default: T, read: Callable[[Process], T], process: Process) -> T:
    """Reads a property of a process. Returns the default if the process has ended meanwhile."""
    try:
        return read(process)
    except Error:
        return default
