"""One request to vLLM's serving classes: a task on the engine's loop that sends the reply to the request's sink."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from handler.engine.adapters.adapters import Adapter
from handler.engine.contract import PreparedRequest, Serving, WholeReply
from handler.engine.core_queue import RequestGroup, join_group
from handler.engine.engine_request import RequestOwner, failure_of
from handler.engine.generation.generation import Sink
from handler.errors import EndpointError, GenerationFailed

# Seconds for which a stream may send events, before the loop runs other tasks.
LONGEST_TURN = 0.01
logger = logging.getLogger(__name__)


class ServingQueue(RequestOwner, Protocol):
    """The part of the engine that a request to vLLM's serving classes uses."""

    base_names: tuple[str, ...]


@dataclass(slots=True, eq=False, repr=False)
class ServingRequest:
    """As `EngineRequest`, for a request that vLLM's serving classes answer.

    It is in the engine's `requests` while it runs. Every method runs on the engine's loop.

    :param _keep: called with a reply that is one document, before the sink gets the end.
    """

    _engine: ServingQueue
    _serving: Serving
    _prepared: PreparedRequest
    _sink: Sink
    _keep: Callable[[WholeReply], None]
    _task: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _adapter: Adapter | None = None
    _group: RequestGroup = field(default_factory=RequestGroup)
    ended: bool = False

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        """Starts the request.

        :param seconds: time limit. A request that has not ended by then is ended with the error `late`.
        """
        if self.ended:
            return
        adapters = self._engine.adapters
        if adapters is not None:
            name = self._prepared.model or self._engine.base_names[0]
            try:
                self._adapter = adapters.begin(name)
            except EndpointError as error:
                self._fail(error)
                return
            if self._adapter is not None:
                self._serving.use_adapter(self._prepared, name, self._adapter.request)
        loop = self._engine.loop.loop
        if seconds is not None and late is not None:
            self._timer = loop.call_later(seconds, self.end, late)
        self._engine.requests.add(self)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        """Releases what the request holds. Called when its task is done, even if it was cancelled before it ran."""
        self._fail(GenerationFailed("it ended early"))  # ignored if this request has ended by itself
        self._engine.requests.discard(self)
        self._task = None  # it refers to this request
        if self._timer is not None:
            self._timer.cancel()
        if self._adapter is not None and self._engine.adapters is not None:
            self._engine.adapters.end(self._adapter)
            self._adapter = None

    async def _run(self) -> None:
        self._group = join_group()
        try:
            reply = await self._serving.reply(self._prepared)
            if isinstance(reply, AsyncIterator):
                await self._forward(reply)
            else:
                self._keep(reply)
            if not self.ended:
                self._sink.push("", (), "stop", None)
                self.ended = True
        except asyncio.CancelledError:
            self._fail(GenerationFailed("it was cancelled"))
        except EndpointError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("a request failed in vLLM's serving classes")
            self._fail(GenerationFailed(type(error).__name__))

    async def _forward(self, events: AsyncIterator[str]) -> None:
        turn = time.monotonic()  # the loop's own clock stands still meanwhile
        async for event in events:
            if not self.ended:
                self._sink.push(event, (), None, None)
            if time.monotonic() - turn > LONGEST_TURN:  # several choices and steps may be there already
                await asyncio.sleep(0)
                turn = time.monotonic()

    def _fail(self, error: EndpointError) -> None:
        if not self.ended:
            self.ended = True
            self._sink.fail(failure_of(error, self._engine.failure, self._group))

    def end(self, error: EndpointError) -> None:
        """Ends the request with an error, and frees its slots."""
        self._fail(error)
        self._stop()

    def cancel(self) -> None:
        """Frees the slots, because the client has disconnected or was cut off."""
        self.ended = True
        self._stop()

    def _stop(self) -> None:
        """Cancels the task. May be called from a push of the same task, which then stops at its next await."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
