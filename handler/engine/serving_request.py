"""One request's life in vLLM's serving classes: a task on the engine's loop whose events go to the request's sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from handler.engine.adapters.adapter_table import Adapter, AdapterTable
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Sink
from handler.errors import EndpointError, EngineFailed, GenerationFailed

if TYPE_CHECKING:
    from handler.engine.vllm_api.serving.serving_classes import PreparedRequest, Serving, WholeReply

logger = logging.getLogger(__name__)


class ServingQueue(Protocol):
    """The engine, as a request in vLLM's serving classes uses it."""

    loop: LoopThread
    base_names: tuple[str, ...]
    adapters: AdapterTable | None
    failure: EndpointError | None
    serving_requests: set[ServingRequest]


class ServingRequest:
    """As `EngineRequest`, for what vLLM's classes answer. All but its making happens on the engine's loop.

    It notes itself down in the engine's `serving_requests` while it is under way.

    :param keep: is given a reply that is one document, before the sink hears of its end.
    """

    __slots__ = ("_adapter", "_engine", "_keep", "_prepared", "_serving", "_sink", "_task", "_timer", "ended")

    def __init__(
        self,
        engine: ServingQueue,
        serving: Serving,
        prepared: PreparedRequest,
        sink: Sink,
        keep: Callable[[WholeReply], None],
    ) -> None:
        self._engine = engine
        self._serving = serving
        self._prepared = prepared
        self._sink = sink
        self._keep = keep
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._adapter: Adapter | None = None
        self.ended = False

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        """:param seconds: from now; a request that has not ended by then is, with the error `late`."""
        if self.ended:
            return
        adapters = self._engine.adapters
        if adapters is not None:
            name = self._prepared.model or self._engine.base_names[0]
            try:
                self._adapter = adapters.begin(name)
            except EndpointError as error:
                self._tell(error)
                return
            if self._adapter is not None:
                self._serving.use_adapter(self._prepared, name, self._adapter.request)
        loop = self._engine.loop.loop
        if seconds is not None and late is not None:
            self._timer = loop.call_later(seconds, self.fail, late)
        self._engine.serving_requests.add(self)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        """Its task is over, also one that was cancelled before it ran: whatever it held is given back."""
        self._engine.serving_requests.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._adapter is not None and self._engine.adapters is not None:
            self._engine.adapters.end(self._adapter)
            self._adapter = None

    async def _run(self) -> None:
        try:
            reply = await self._serving.reply(self._prepared)
            if isinstance(reply, AsyncIterator):
                await self._pass_on(reply)
            else:
                self._keep(reply)
            if not self.ended:
                self.ended = True
                self._sink.push("", (), "stop", None)
        except asyncio.CancelledError:
            self._tell(GenerationFailed("it was cancelled"))  # not heard where it was this request's own end
        except EndpointError as error:
            self._tell(error)
        except Exception as error:
            logger.exception("a request failed in vLLM's serving classes")
            self._tell(GenerationFailed(type(error).__name__))

    async def _pass_on(self, events: AsyncIterator[str]) -> None:
        async for event in events:
            if not self.ended:
                self._sink.push(event, (), None, None)

    def _tell(self, error: EndpointError) -> None:
        if not self.ended:
            self.ended = True
            self._sink.fail(self._engine.failure or error if isinstance(error, EngineFailed) else error)

    def fail(self, error: EndpointError) -> None:
        """Ends it with an error, and frees its slots."""
        self._tell(error)
        self._stop()

    def cancel(self) -> None:
        """The client is gone, or cut off: free the slots."""
        self.ended = True
        self._stop()

    def _stop(self) -> None:
        """Also from within a push of the task's own: then it stops at its next wait."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
