"""A server's processes: which one speaks HTTP, what it has used, how all of them are ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psutil import (
    CONN_LISTEN,
    Error,
    NoSuchProcess,
    Process,
    wait_procs,
)

ENGINE_TITLE = "VLLM::"  # the process title vLLM gives to its engine core and workers
GRACE_S = 3.0  # that descendants have to follow the first of them


@dataclass(frozen=True, slots=True)
class Usage:
    """Of the processes that speak HTTP, unless it says otherwise."""

    cpu_s: float  # user and system, since they began
    rss_bytes: int
    tree_rss_bytes: int  # of every process of the server; shared pages count once for each
    core_cpu_s: float = 0.0  # of the engine's core


def family(root: int) -> list[Process]:
    """The process and all its descendants that live."""
    try:
        process = Process(root)
        return [process, *process.children(recursive=True)]
    except NoSuchProcess:
        return []


def http_processes(root: int, port: int) -> list[Process]:
    """Those that hold the listening socket and have no descendant that does, the engine's own aside.

    gunicorn's master holds the socket but its workers answer; an engine core that was forked may hold a copy.
    """
    holders = {
        process.pid: process
        for process in family(root)
        if not title(process).startswith(ENGINE_TITLE) and _listens(process, port)
    }
    ancestors = {parent.pid for process in holders.values() for parent in process.parents()}
    return [process for pid, process in holders.items() if pid not in ancestors]


def usage(root: int, http: Sequence[Process]) -> Usage:
    cpu, rss = 0.0, 0
    for process in http:
        times = process.cpu_times()
        cpu += times.user + times.system
        rss += process.memory_info().rss
    every = family(root)
    core = sum(_cpu(process) for process in every if title(process).startswith(ENGINE_TITLE))
    return Usage(cpu, rss, sum(_rss(process) for process in every), core)


def end(processes: Sequence[Process], patience_s: float) -> None:
    """SIGTERM to the first of them, SIGKILL to whichever is left after `patience_s`."""
    if not processes:
        return
    _signal(processes[0], kill=False)
    wait_procs(processes[:1], timeout=patience_s)
    _, alive = wait_procs(processes, timeout=GRACE_S)
    for process in alive:
        _signal(process, kill=True)
    wait_procs(alive, timeout=5)


def _signal(process: Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except NoSuchProcess:
        pass


def title(process: Process) -> str:
    try:
        return " ".join(process.cmdline())
    except Error:
        return ""


def _listens(process: Process, port: int) -> bool:
    try:
        return any(c.status == CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp"))
    except Error:
        return False


def _cpu(process: Process) -> float:
    try:
        times = process.cpu_times()
        return float(times.user + times.system)
    except Error:
        return 0.0


def _rss(process: Process) -> int:
    try:
        return int(process.memory_info().rss)
    except Error:
        return 0
