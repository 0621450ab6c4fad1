"""What vLLM does in each of its processes at their begin. It is an entry point of `vllm.general_plugins`."""

from __future__ import annotations

from handler.engine.engine_client.processes import cpu_isa, parent_watch


def register() -> None:
    """Raises nothing."""
    parent_watch.start()
    cpu_isa.register()
    _quiet_gloo()


def _quiet_gloo() -> None:
    """Gloo prints a line to standard output for each group. vLLM keeps some of them out of the log, except at DEBUG."""
    try:
        from vllm.utils.system_utils import suppress_stdout
    except ImportError:  # vLLM 0.11 and before
        return
    from torch import distributed

    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, suppress_stdout()(getattr(distributed, name)))
