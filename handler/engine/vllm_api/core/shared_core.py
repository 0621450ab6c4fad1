"""The engine's core as several front ends share it. Runs in the core's own process. Written for 0.16.0.

vLLM's core answers each request on the line of the client that asked (`client_index`, v1/engine/core.py), but knows
nothing of a client that is gone: its requests would go on to their ends, each in a slot, for nobody.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine import core
from vllm.v1.engine.core import EngineCoreProc

_run = EngineCoreProc.run_engine_core


class SharedCore(EngineCoreProc):  # type: ignore[misc]  # vLLM is untyped
    """A core that can be told that a client is gone."""

    def add_request(self, request: Any, request_wave: int = 0) -> None:
        """What a client sent just before its end may be read after the word that it is gone."""
        if request.client_index not in getattr(self, "_gone", ()):
            super().add_request(request, request_wave)

    def release_client(self, index: int) -> int:
        """Ends the requests of a client that will never be back; returns how many there were. Between two steps."""
        self._gone: set[int] = getattr(self, "_gone", set()) | {index}
        left = [name for name, request in self.scheduler.requests.items() if request.client_index == index]
        self.abort_requests(left)
        return len(left)


def run_shared_core(*arguments: Any, **named: Any) -> None:
    """In the place of `EngineCoreProc.run_engine_core`, which makes the class that its module knows by that name."""
    core.EngineCoreProc = SharedCore
    _run(*arguments, **named)
