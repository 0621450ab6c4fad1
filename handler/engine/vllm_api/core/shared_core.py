"""The engine core that several front ends share. Runs in the core's own process. Written for 0.16.0.

vLLM's core sends each output to the client of its request (`client_index`, v1/engine/core.py), but does not notice that
a client has ended. The requests of an ended client would keep their slots until they are finished.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine import core
from vllm.v1.engine.core import EngineCoreProc

_run = EngineCoreProc.run_engine_core


class SharedCore(EngineCoreProc):  # type: ignore[misc]  # vLLM is untyped
    """A core with a method that ends the requests of a client that has ended."""

    def add_request(self, request: Any, request_wave: int = 0) -> None:
        """Ignores requests of released clients. One that was sent just before the client's end may be read after it."""
        if request.client_index not in getattr(self, "_released", ()):
            super().add_request(request, request_wave)

    def release_client(self, index: int) -> int:
        """Ends the requests of a client that has ended, and returns how many there were. Runs between two steps."""
        self._released: set[int] = getattr(self, "_released", set()) | {index}
        names = [name for name, request in self.scheduler.requests.items() if request.client_index == index]
        self.abort_requests(names)
        return len(names)


def run_shared_core(*arguments: Any, **named: Any) -> None:
    """Replaces `EngineCoreProc.run_engine_core`, so that the core is a `SharedCore`."""
    core.EngineCoreProc = SharedCore
    _run(*arguments, **named)
