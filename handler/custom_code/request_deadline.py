"""Until when the engine may work for the request that a hook runs for, known to the engine's methods by the context
of the call: a thread's, or an async hook's task's."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from handler.errors import EndpointError

# Of a streamed answer or of a whole one: seconds left, and the error of one that comes too late.
RequestDeadline = Callable[[bool], tuple[float, EndpointError]]
UNTIL: ContextVar[RequestDeadline | None] = ContextVar("until", default=None)


def timing(*, stream: bool) -> tuple[float, EndpointError] | tuple[()]:
    """What `EngineRequest.begin` is given: nothing outside of a request."""
    until = UNTIL.get()
    return () if until is None else until(stream)
