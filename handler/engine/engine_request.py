"""One request to the engine, from its queueing to its last token, its failure or its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from handler.engine.adapters.adapters import Adapter, Adapters
from handler.engine.contract import EngineAdapter
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Generation, Sink, StopReason
from handler.errors import EndpointError, EngineFailed, GenerationFailed


class RunningRequest(Protocol):
    """A request that the engine may have to end."""

    def end(self, error: EndpointError) -> None: ...


class RequestOwner(Protocol):
    """The part of the engine that a request uses."""

    loop: LoopThread
    adapters: Adapters | None
    failure: EndpointError | None
    requests: set[RunningRequest]


def failure_of(error: EndpointError, failure: EndpointError | None, group: RequestGroup) -> EndpointError:
    """The error that a request gets.

    :param failure: what requests get after the engine has ended.
    """
    if not isinstance(error, EngineFailed):
        return error
    return failure or EngineFailed(error.reason, in_core=group.held > 0)


@dataclass(slots=True, eq=False, repr=False)
class EngineRequest:
    """One request to the engine. It stands between vLLM and the request's sink, and has a sink's methods itself.

    The sink gets nothing after the request has ended. The slot of a cancelled request is freed, whether it is cancelled
    before, while or after vLLM queues it. It is in the engine's `requests` while it runs. Every method runs on the
    engine's loop.
    """

    _engine: RequestOwner
    _vllm: EngineAdapter
    _generation: Generation
    _params: object
    _sink: Sink
    _timer: asyncio.TimerHandle | None = None
    adapter: Adapter | None = None
    internal_id: str | None = None
    group: RequestGroup = field(default_factory=RequestGroup)
    cancelled: bool = False
    ended: bool = False

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
                self.adapter = self._engine.adapters.begin(self._generation.model)
            except EndpointError as error:
                self.fail(error)
                return
        if seconds is not None and late is not None:
            self._timer = self._engine.loop.loop.call_later(seconds, self.end, late)
        self._engine.loop.task(self._add())

    async def _add(self) -> None:
        GROUP.set(self.group)
        try:
            lora = None if self.adapter is None else self.adapter.request
            self.internal_id = await self._vllm.add(self._generation, self._params, self, lora)
        except Exception as error:
            self.fail(self._vllm.as_endpoint_error(error))
            return
        if self.cancelled and self.internal_id is not None:
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

    def fail(self, error: EndpointError) -> None:
        if not self.ended:
            self._finish()
            self._sink.fail(failure_of(error, self._engine.failure, self.group))

    def end(self, error: EndpointError) -> None:
        """Ends the request with an error, and frees its slot."""
        if not self.ended:
            self.cancel()
            self._sink.fail(failure_of(error, self._engine.failure, self.group))

    def cancel(self) -> None:
        """Frees the slot, because the client has disconnected or was cut off."""
        if self.ended:
            return
        self._finish()
        self.cancelled = True
        if self.internal_id is not None:
            self._engine.loop.task(self._vllm.abort(self.internal_id))

    def _finish(self) -> None:
        self.ended = True
        self._engine.requests.discard(self)
        if self.adapter is not None and self._engine.adapters is not None:
            self._engine.adapters.end(self.adapter)
            self.adapter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
