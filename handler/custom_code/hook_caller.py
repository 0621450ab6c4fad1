"""Calls a function of custom code: sync or async, with or without a context. Its generators become iterators.

Async functions run on an event loop of their own, in one thread. One that blocks delays other async hooks, but never
the engine's tokens. A function that calls `sys.exit` fails its own request: it ends neither a loop nor the process.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from handler.custom_code.code_errors import CustomCodeFailed, CustomCodeRefused, Exited, UnsupportedFormat
from handler.engine.event_loop import LoopThread
from handler.errors import EndpointError, SettingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of custom code. With `takes_context` its last argument is the context."""

    name: str
    function: Callable[..., Any]
    takes_context: bool

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], arguments: int) -> Hook:
        """Inspects the arguments of a function.

        :param arguments: the number of arguments without the context.
        :raises SettingError: the function takes another number of arguments.
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
        raise SettingError(name, problem, "docs/custom-code.md lists the arguments of each hook.")


@dataclass(frozen=True, slots=True)
class HookCaller:
    """Calls hooks. `loop` runs async functions."""

    loop: LoopThread = field(default_factory=lambda: LoopThread.start("custom-code"))

    def call(self, hook: Hook, *arguments: object, context: object) -> Any:
        """Calls a hook, and waits for it if it is async.

        :raises EndpointError: the hook raised an exception: an EndpointError, an error of `sagemaker-inference`, or
            another one (SystemExit is one, too), which becomes a 500.
        """
        passed = (*arguments, context) if hook.takes_context else arguments
        try:
            result = hook.function(*passed)
            return self.loop.run(contained(result)) if inspect.isawaitable(result) else result
        except BaseException as error:
            raise as_endpoint_error(hook.name, error) from error

    def pieces(self, name: str, stream: object) -> Generator[Any]:
        """The items of a sync or async generator. Closing this iterator closes the generator.

        :raises EndpointError: as `call`.
        """
        try:
            if isinstance(stream, AsyncIterator):
                yield from self._from_async(stream)
            elif isinstance(stream, Iterator):
                yield from stream
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise as_endpoint_error(name, error) from error

    def _from_async(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        items: SimpleQueue[Any] = SimpleQueue()
        demands: asyncio.Queue[bool] = asyncio.Queue()
        end = object()
        iteration = self.loop.spawn(contained(_iterate(stream, demands, items, end)))
        try:
            while True:
                self.loop.call(demands.put_nowait, True)
                if (item := items.get()) is end:
                    return
                yield item
        finally:
            self.loop.call(demands.put_nowait, False)
            # The garbage collector may close this generator on the loop, which cannot wait for itself.
            if threading.current_thread() is not self.loop.thread:
                iteration.result()  # raises what the stream raised


async def _iterate(
    stream: AsyncIterator[Any], demands: asyncio.Queue[bool], items: SimpleQueue[Any], end: object
) -> None:
    """Makes an item for each demand, until one is False, and closes the stream. `end` is the last item.

    All of this is one task, as on a server: a time-out, a cancel scope and a context variable that the stream has set
    belong to its task.
    """
    try:
        while await demands.get():
            items.put(await anext(stream))
    except StopAsyncIteration:
        pass
    finally:
        try:
            aclose = getattr(stream, "aclose", None)
            if aclose is not None:
                await aclose()
        finally:
            items.put(end)


async def contained(value: Awaitable[Any]) -> Any:
    """Awaits what custom code returned. :raises Exited: in the place of what would end the event loop."""
    try:
        return await value
    except (SystemExit, KeyboardInterrupt) as error:
        raise Exited from error


def is_stream(value: object) -> bool:
    return isinstance(value, Iterator | AsyncIterator)


def as_endpoint_error(name: str, error: BaseException) -> EndpointError:
    """The endpoint error for an exception of custom code. The traceback goes to the log."""
    error = error.__cause__ or error if isinstance(error, Exited) else error
    known = error if isinstance(error, EndpointError) else _library_error(name, error)
    if known is not None:
        return known
    logger.error("%s raised %s", name, type(error).__name__, exc_info=error)
    return CustomCodeFailed(name, error)


def _library_error(name: str, error: BaseException) -> EndpointError | None:
    """The endpoint error for an error of `sagemaker-inference`. None for other exceptions, or if hooks are not used."""
    if "sagemaker_inference.errors" not in sys.modules:
        return None
    from sagemaker_inference import errors

    if isinstance(error, errors.BaseInferenceToolkitError):
        return CustomCodeRefused(int(error.status_code), str(error.message))
    if isinstance(error, errors.UnsupportedFormatError):
        return UnsupportedFormat(str(error), accept=name == "output_fn")
    return None
