"""Finds the processes of a server, measures their CPU time and memory, and ends them."""

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

    gunicorn's master holds the socket, but its workers serve requests. A forked engine core may hold a copy.
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
    """Sends SIGTERM to the first process, and SIGKILL to all that remain after `patience_s`."""
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
