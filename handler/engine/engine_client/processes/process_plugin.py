"""What vLLM does in each of its processes at their begin. It is an entry point of `vllm.general_plugins`."""

from __future__ import annotations

from handler.engine.engine_client.processes import cpu_isa, parent_watch


def register() -> None:
    """Raises nothing."""
    parent_watch.start()
    cpu_isa.register()
    _quiet_gloo()


def _quiet_gloo() -> None:
    """Gloo prints a line for each group. As vLLM does itself for some of them, this drops them, except at DEBUG."""
    try:
        from torch import distributed
        from vllm.utils.system_utils import suppress_stdout
    except ImportError:  # vLLM 0.11 and before
        return
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, suppress_stdout()(getattr(distributed, name)))
