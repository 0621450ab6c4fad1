"""The deadline of the request for which custom code runs. The methods of `EngineModel` read it from a context variable.

The variable is set in the thread of a sync hook, and in the task of an async hook.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from handler.errors import EndpointError

# Takes whether the answer is streamed. Returns the seconds left, and the error for an answer that is too late.
RequestDeadline = Callable[[bool], tuple[float, EndpointError]]
REQUEST_DEADLINE: ContextVar[RequestDeadline | None] = ContextVar("until", default=None)


def deadline_arguments(*, stream: bool) -> tuple[float, EndpointError] | tuple[()]:
    """The arguments for `EngineRequest.begin`. None outside of a request."""
    deadline = REQUEST_DEADLINE.get()
    return () if deadline is None else deadline(stream)
