"""One request to the engine, from its queueing to its last token, its failure or its cancellation."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from handler.engine.adapters.adapters import Adapter, Adapters
from handler.engine.contract import EngineAdapter, PreparedRequest, Serving, WholeReply
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Generation, Sink, StopReason
from handler.errors import EndpointError, EngineFailed, GenerationFailed

# Seconds for which a stream may send events, before the loop runs other tasks.
LONGEST_TURN = 0.01
logger = logging.getLogger(__name__)


class RequestOwner(Protocol):
    """The part of the engine that a request uses."""

    loop: LoopThread
    base_names: tuple[str, ...]
    adapters: Adapters | None
    failure: EndpointError | None
    requests: set[RunningRequest]


@dataclass(slots=True, eq=False, repr=False)
class RunningRequest(ABC):
    """A request to the engine. It is in the engine's `requests` while it runs.

    The sink gets nothing after the request has ended. Every method runs on the engine's loop.
    """

    _engine: RequestOwner
    _sink: Sink
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    adapter: Adapter | None = field(default=None, init=False)
    group: RequestGroup = field(default_factory=RequestGroup, init=False)
    ended: bool = field(default=False, init=False)

    @property
    @abstractmethod
    def model(self) -> str | None:
        """The name that chooses the adapter."""

    @abstractmethod
    def _start(self) -> None:
        """Gives the request to vLLM."""

    @abstractmethod
    def _stop(self) -> None:
        """Frees the slots. May be called from a push of the same request."""

    def begin(self, seconds: float | None = None, late: EndpointError | None = None) -> None:
        """Queues the request.

        :param seconds: time limit. A request that has not ended by then is ended with the error `late`.
        """
        if self.ended:
            return
        self.group = GROUP.get() or self.group
        self._engine.requests.add(self)
        if self._engine.adapters is not None:
            try:
                self.adapter = self._engine.adapters.begin(self.model)
            except EndpointError as error:
                self.fail(error)
                return
        if seconds is not None and late is not None:
            self._timer = self._engine.loop.loop.call_later(seconds, self.end, late)
        self._start()

    def fail(self, error: EndpointError) -> None:
        if not self.ended:
            self._finish()
            if isinstance(error, EngineFailed):
                error = self._engine.failure or EngineFailed(error.reason, in_core=self.group.held > 0)
            self._sink.fail(error)

    def end(self, error: EndpointError) -> None:
        """Ends the request with an error, and frees its slot."""
        if not self.ended:
            self.fail(error)
            self._stop()

    def cancel(self) -> None:
        """Frees the slot, because the client has disconnected or was cut off."""
        if not self.ended:
            self._finish()
            self._stop()

    def _finish(self) -> None:
        self.ended = True
        self._release()

    def _release(self) -> None:
        self._engine.requests.discard(self)
        if self.adapter is not None and self._engine.adapters is not None:
            self._engine.adapters.end(self.adapter)
            self.adapter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(slots=True, eq=False, repr=False)
class EngineRequest(RunningRequest):
    """A request of the plain path. It stands between vLLM and the request's sink, and has a sink's methods itself.

    The slot of a cancelled request is freed, whether it is cancelled before, while or after vLLM queues it.
    """

    _vllm: EngineAdapter
    _generation: Generation
    _params: object
    internal_id: str | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    @property
    def model(self) -> str | None:
        return self._generation.model

    def _start(self) -> None:
        self._engine.loop.task(self._add())

    async def _add(self) -> None:
        GROUP.set(self.group)
        try:
            lora = None if self.adapter is None else self.adapter.request
            self.internal_id = await self._vllm.add(self._generation, self._params, self, lora)
        except Exception as error:
            self.fail(self._vllm.as_endpoint_error(error))
            return
        if self._stopped and self.internal_id is not None:
            await self._vllm.abort(self.internal_id)

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if self.ended:
            return
        if finish_reason in {"error", "abort"}:
            self.fail(GenerationFailed(f"it ended with '{finish_reason}'"))
            return
        self._sink.push(text, token_ids, finish_reason, stop_reason)  # if it raises, the request fails
        if finish_reason is not None:
            self._finish()

    def _stop(self) -> None:
        self._stopped = True
        if self.internal_id is not None:
            self._engine.loop.task(self._vllm.abort(self.internal_id))


@dataclass(slots=True, eq=False, repr=False)
class ServingRequest(RunningRequest):
    """A request that vLLM's serving classes answer: a task that sends the reply to the request's sink.

    :param _keep: called with a reply that is one document, before the sink gets the end.
    """

    _serving: Serving
    _prepared: PreparedRequest
    _keep: Callable[[WholeReply], None]
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def model(self) -> str:
        return self._prepared.model or self._engine.base_names[0]

    def _start(self) -> None:
        if self.adapter is not None:
            self._serving.use_adapter(self._prepared, self.model, self.adapter.request)
        self._task = self._engine.loop.loop.create_task(self._run())
        self._task.add_done_callback(self._done)

    def _finish(self) -> None:
        self.ended = True
        if self._task is None:  # else it releases what it may still use
            self._release()

    def _done(self, task: asyncio.Task[None]) -> None:
        """Called when the task is done, even if it was cancelled before it ran."""
        self.fail(GenerationFailed("it ended early"))  # ignored if this request has ended by itself
        self._task = None  # it refers to this request
        self._release()

    async def _run(self) -> None:
        GROUP.set(self.group)
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
            self.fail(GenerationFailed("it was cancelled"))
        except EndpointError as error:
            self.fail(error)
        except Exception as error:
            logger.exception("a request failed in vLLM's serving classes")
            self.fail(GenerationFailed(type(error).__name__))

    async def _forward(self, events: AsyncIterator[str]) -> None:
        turn = time.monotonic()  # the loop's own clock stands still meanwhile
        async for event in events:
            if not self.ended:
                self._sink.push(event, (), None, None)
            if time.monotonic() - turn > LONGEST_TURN:  # several choices and steps may be there already
                await asyncio.sleep(0)
                turn = time.monotonic()

    def _stop(self) -> None:
        """Cancels the task, which then stops at its next await."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
