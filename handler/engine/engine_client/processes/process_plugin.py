"""What vLLM does in each of its processes at their begin. It is an entry point of `vllm.general_plugins`."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading

from handler.engine.engine_client.processes import cpu_isa


def register() -> None:
    """Raises nothing."""
    _end_with_parent()
    cpu_isa.register()
    _quiet_gloo()


def _end_with_parent() -> None:
    """Ends a core or a worker, which `multiprocessing` has started, together with its parent. A thread waits for that.

    vLLM ends its processes when it shuts down, which a parent that is killed does not. A core that lives on keeps its
    memory and its Neuron cores.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return

    def wait(descriptor: int) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        descriptor = os.pidfd_open(parent.pid)
    except ProcessLookupError:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=wait, args=(descriptor,), name="parent-watch", daemon=True).start()


def _quiet_gloo() -> None:
    """Gloo prints a line for each group. As vLLM does itself for some of them, this drops them, except at DEBUG."""
    try:
        from torch import distributed
        from vllm.utils.system_utils import suppress_stdout
    except ImportError:  # vLLM 0.11 and before
        return
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, suppress_stdout()(getattr(distributed, name)))
