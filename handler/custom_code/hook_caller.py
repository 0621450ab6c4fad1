"""Calls one function of the owner's: sync or async, with a context or without; and its generators as iterators.

Async functions run on a loop of their own in one thread, so that one that blocks delays other async hooks, and never
the engine's tokens.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from handler.custom_code.code_errors import CustomCodeFailed
from handler.engine.event_loop import LoopThread
from handler.errors import EndpointError, SettingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """One function and whether it takes the context last."""

    name: str
    function: Callable[..., Any]
    takes_context: bool

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], arguments: int) -> Hook:
        """:param arguments: how many there are without the context.
        :raises SettingError: it takes another number.
        """
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls(name, function, takes_context=False)
        for takes_context in (True, False):
            try:
                signature.bind(*[None] * (arguments + takes_context))
            except TypeError:
                continue
            return cls(name, function, takes_context)
        problem = f"it takes {len(signature.parameters)} arguments, not {arguments}, or {arguments + 1} with a context"
        raise SettingError(name, problem, "See docs/custom-code.md for what it is called with.")


@dataclass(frozen=True, slots=True)
class HookCaller:
    """:param loop: made by `LoopThread.start`; for async functions."""

    loop: LoopThread = field(default_factory=lambda: LoopThread.start("custom-code"))

    def call(self, hook: Hook, *arguments: object, context: object) -> Any:
        """:raises EndpointError: the hook raised; an error of the tree or of the library as it is, else a 500."""
        given = (*arguments, context) if hook.takes_context else arguments
        try:
            result = hook.function(*given)
            return self.loop.run(_awaited(result)) if inspect.isawaitable(result) else result
        except Exception as error:
            raise as_endpoint_error(hook.name, error) from error

    def pieces(self, name: str, stream: object) -> Iterator[Any]:
        """A generator's items. Closing this closes the generator, wherever it is.

        :raises EndpointError: as above.
        """
        try:
            if isinstance(stream, AsyncIterator):
                yield from self._from_async(stream)
            elif isinstance(stream, Iterator):
                yield from stream
        except Exception as error:
            raise as_endpoint_error(name, error) from error

    def _from_async(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        try:
            while (item := self.loop.run(_next(stream, end))) is not end:
                yield item
        finally:
            aclose = getattr(stream, "aclose", None)
            if aclose is not None:
                self.loop.run(_awaited(aclose()))


async def _awaited(value: Any) -> Any:
    return await value


async def _next(stream: AsyncIterator[Any], end: object) -> object:
    return await anext(stream, end)


def is_stream(value: object) -> bool:
    return isinstance(value, Iterator | AsyncIterator)


def as_endpoint_error(name: str, error: Exception) -> EndpointError:
    """An error of the tree; the traceback goes to the log."""
    from handler.custom_code.library_errors import translated

    known = error if isinstance(error, EndpointError) else translated(name, error)
    if known is not None:
        return known
    logger.error("%s raised %s", name, type(error).__name__, exc_info=error)
    return CustomCodeFailed(name, error)
