"""Checks each sequence, and lets it wait in the core's queue. Seen on vLLM 0.16.0, 0.24.0, 0.29.0 and 0.32.0.

vLLM has one function that gives a sequence to the core (`AsyncLLM._add_request`), and one table of the sequences that
the core has (`OutputProcessor.request_states`, from which every end removes them). 0.32.0 does not use that function
for a request with several sequences: it adds all of them to the table, and then sends each to the core. They are kept
from the table until their turn.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.core_queue import GROUP, CoreQueue
from handler.engine.engine_client.input_gate import InputGate
from handler.engine.queue_limits import QueueLimits
from handler.engine.v1.grammar_guard import GrammarGuard


class _States(dict[str, Any]):
    """vLLM's table of sequences, which reports what is removed."""

    def __init__(self, removed: Callable[[str], None]) -> None:
        super().__init__()
        self._removed = removed

    def pop(self, name: str, *default: Any) -> Any:
        state = super().pop(name, *default)
        self._removed(name)
        return state

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._removed(name)


class QueuedRequests:
    """The queue in front of one engine. Make it before the engine has requests, on the engine's loop.

    :param guard: knows how long the core compiles a grammar. None: nobody knows.
    :ivar queue: the queue.
    """

    def __init__(self, llm: AsyncLLM, limits: QueueLimits, guard: GrammarGuard | None) -> None:
        loop = asyncio.get_running_loop()
        self.queue = CoreQueue(limits, loop, self._is_prefilling)
        self._guard = guard
        self._loop = loop
        self._processor = processor = llm.output_processor
        self._states = processor.request_states = _States(self.queue.left)
        # The sequences of a request with several that are still outside, by the names of the request.
        self._outside: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._enter, llm._add_request = llm._add_request, self._add
        self._entering = ""
        self._children: dict[str, tuple[Any, Any, int, Any]] = {}
        self._register, processor.add_request = processor.add_request, self._register_request
        self._send, llm.engine_core.add_request_async = llm.engine_core.add_request_async, self._send_request
        self._abort, processor.abort_requests = processor.abort_requests, self._abort_requests
        self.process_outputs, processor.process_outputs = processor.process_outputs, self._process_outputs
        self._propagate, processor.propagate_error = processor.propagate_error, self._propagate_error
        if llm.logger_manager is not None:
            self._record, llm.logger_manager.record = llm.logger_manager.record, self._record_stats

    def _is_prefilling(self, name: str) -> bool:
        state = self._states.get(name)
        return state is not None and bool(state.is_prefilling)

    async def _add(self, request: EngineCoreRequest, prompt: Any, parent: Any, index: int, collector: Any) -> None:
        """Replaces `AsyncLLM._add_request`. The collector of several sequences gets the first ones' outputs at once."""
        if parent is None:
            await self._wait(request, prompt, None, index, collector)
            return
        names = (parent.request_id, getattr(parent, "external_req_id", parent.request_id))
        task = self._loop.create_task(self._add_child(request, prompt, parent, index, collector))
        for name in names:
            self._outside[name].add(task)
        task.add_done_callback(lambda ended: self._entered(ended, names))

    def _register_request(
        self, request: EngineCoreRequest, prompt: Any, parent: Any = None, index: int = 0, queue: Any = None
    ) -> None:
        """Replaces `OutputProcessor.add_request`. A child whose turn has not come is registered when it comes."""
        if parent is None or request.request_id == self._entering:
            self._register(request, prompt, parent, index, queue)
        else:
            self._children[request.request_id] = (prompt, parent, index, queue)

    def _send_request(self, request: EngineCoreRequest) -> Coroutine[Any, Any, None]:
        """Replaces `AsyncMPClient.add_request_async`."""
        child = self._children.pop(request.request_id, None)
        sent: Coroutine[Any, Any, None] = self._send(request) if child is None else self._add(request, *child)
        return sent

    async def _add_child(
        self, request: EngineCoreRequest, prompt: Any, parent: Any, index: int, collector: Any
    ) -> None:
        try:
            await self._wait(request, prompt, parent, index, collector)
        except Exception as error:
            collector.put(error)

    async def _wait(self, request: EngineCoreRequest, prompt: Any, parent: Any, index: int, collector: Any) -> None:
        name, params = request.request_id, request.sampling_params
        tokens = len(request.prompt_token_ids or ())
        # Compiling a grammar may take seconds. A request with such a one does not hold up others.
        grammar = params is not None and params.structured_outputs is not None
        paced = not grammar or (self._guard is not None and self._guard.compiles_at_once(params))
        wanted = getattr(collector, "wanted", _always)
        if not await self.queue.turn(name, tokens, wanted, group=GROUP.get(), paced=paced):
            return
        self._entering = name
        try:
            await self._enter(request, prompt, parent, index, collector)
        except Exception:
            # It is in vLLM's table, but could not be sent: the core reports no end of it.
            if (state := self._states.get(name)) is not None:
                self._processor._finish_request(state)
            raise
        finally:
            if name not in self._states:
                self.queue.left(name)

    def _entered(self, task: asyncio.Task[None], names: Iterable[str]) -> None:
        for name in names:
            self._outside[name].discard(task)
            if not self._outside[name]:
                del self._outside[name]

    def _abort_requests(self, names: Iterable[str], *arguments: Any, **named: Any) -> Any:
        names = list(names)
        for name in names:
            for task in tuple(self._outside.get(name, ())):
                task.cancel()
        return self._abort(names, *arguments, **named)

    def _process_outputs(self, outputs: Any, *arguments: Any, **named: Any) -> Any:
        """Replaces `OutputProcessor.process_outputs`, and tells the queue of the step."""
        streams: bool | None = None
        for output in outputs:
            state = self._states.get(output.request_id)
            if state is None:
                continue
            if not streams and not state.is_prefilling and state.queue is not None:
                streams = bool(state.queue.aggregate)
            if output.finish_reason is not None and state.detokenizer is not None:
                self.queue.replied(state.detokenizer.num_output_tokens() + len(output.new_token_ids))
        result = self.process_outputs(outputs, *arguments, **named)
        self.queue.step(streams)
        return result

    def _propagate_error(self, error: Exception) -> None:
        """Replaces `OutputProcessor.propagate_error`: the engine has ended."""
        self._propagate(error)
        self.queue.end(error)

    def _record_stats(self, *arguments: Any, scheduler_stats: Any = None, **named: Any) -> Any:
        """Replaces `StatLoggerManager.record`: in vLLM's metrics, what waits here waits for the engine."""
        if scheduler_stats is not None and not named.get("engine_idx"):  # of several cores, the first
            scheduler_stats.num_waiting_reqs += self.queue.waiting
        return self._record(*arguments, scheduler_stats=scheduler_stats, **named)


def check_inputs(llm: AsyncLLM, gate: InputGate, guard: GrammarGuard | None) -> None:
    """Puts the gate in front of an engine, and requires that grammars have been tried.

    vLLM makes the message to its core in `InputProcessor.process_inputs`, for its serving classes, for a beam search
    and for this software. So it is wrapped there.
    """
    processor = llm.input_processor
    process = processor.process_inputs

    def process_inputs(request_id: str, prompt: Any, params: Any, *arguments: Any, **named: Any) -> Any:
        if guard is not None:
            guard.require_tried(params)
        request = process(request_id, prompt, params, *arguments, **named)
        sampling = request.sampling_params
        whole = gate.check(request.prompt_token_ids or (), request.cache_salt or "", sampling)
        if whole and sampling.prompt_logprobs is None:
            sampling.flat_logprobs = True  # lists of numbers, which the garbage collector does not walk
        return request

    processor.process_inputs = process_inputs


def _always() -> bool:
    return True
