"""What vLLM does in each of its processes at their begin. It is an entry point of `vllm.general_plugins`."""

from __future__ import annotations

from handler.engine.engine_client.processes import cpu_isa, parent_watch


def register() -> None:
    """Raises nothing."""
    parent_watch.start()
    cpu_isa.register()
