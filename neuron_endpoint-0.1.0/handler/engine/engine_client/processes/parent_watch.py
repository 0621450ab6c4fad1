"""Ends a process of the engine together with its parent, whatever has ended that."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading


def start() -> None:
    """Watches the parent, if `multiprocessing` has started this process: a core or a worker. Does so in a thread.

    vLLM ends its processes when it shuts down, which a parent that is killed does not. A core that lives on keeps its
    memory and its Neuron cores.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return
    try:
        descriptor = os.pidfd_open(parent.pid)
    except ProcessLookupError:  # it has ended already
        _end()
    threading.Thread(target=_wait, args=(descriptor,), name="parent-watch", daemon=True).start()


def _wait(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not poll.poll():
        pass
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
