"""What vLLM does in each of its processes at their begin. It is an entry point of `vllm.general_plugins`."""

from __future__ import annotations

import logging
import multiprocessing
import os
import select
import signal
import threading
import time
from functools import partial
from typing import Final

from handler.engine.engine_client.processes import allowed_tokens, cpu_isa

WAIT: Final = 5e-6  # seconds between two looks for a message; Linux adds some 50 us

# The logger of what a core dumps when a step of its model fails, and the lines of it that have no text of requests
# (vLLM 0.9 to 0.32, logging_utils/dump_input.py). The others have stop strings, grammars and schemas.
DUMPS: Final = "vllm.logging_utils.dump_input"
TEXTLESS: Final = ("Dumping input data", "V1 LLM engine", "Dumping scheduler stats", "Error preparing object to dump")


def register() -> None:
    """Raises nothing."""
    leave_out_dumped_requests()
    _end_with_parent()
    cpu_isa.register()
    allowed_tokens.register()
    _quiet_gloo()
    _wait_without_spinning()


def leave_out_dumped_requests() -> None:
    logging.getLogger(DUMPS).addFilter(_is_textless)


def _is_textless(record: logging.LogRecord) -> bool:
    return str(record.msg).startswith(TEXTLESS)


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


def _wait_without_spinning() -> None:
    """On a CPU, a core and its worker sleep while they wait for each other's messages.

    Instead vLLM spins on `sched_yield` for a second after each message. That spares 0.1 to 0.4 ms of a step (the sample
    model, 0.24). On a machine with two CPUs, both processes leave everything else, /ping too, without CPU time for
    seconds (Linux 6.18).
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    try:
        from vllm.distributed.device_communicators import shm_broadcast
    except ImportError:  # a version that has it elsewhere spins
        return
    shm_broadcast.sched_yield = partial(time.sleep, WAIT)
