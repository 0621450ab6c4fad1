"""Moves tokens from the engine core's socket to their sinks, in one callback of the loop.

vLLM itself wakes one task for a message and another for its outputs, and makes two objects for each token. Measured
with 32 streams, that is half of a front end's cost without the sending (benchmarks/README.md). Here the loop reads the
core's socket itself, and a plain request's tokens go directly to its sink. All other requests (vLLM's serving classes,
logprobs, several sequences) go through vLLM's output processor as usual.

If the loop is late, and further steps of the core have arrived already, their tokens are pushed to the sink together,
as vLLM's own collector does. No token waits for one that has not arrived.

These parts of vLLM are used: `AsyncMPClient`'s sockets, decoder and `_process_utility_output`
(v1/engine/core_client.py), `OutputProcessor.request_states` and its statistics (v1/engine/output_processor.py), and
the detokenizer (v1/engine/detokenizer.py). Seen on vLLM 0.16.0, 0.24.0, 0.29.0 and 0.32.0; `version_differences` has
what differs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import zmq
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import _process_utility_output
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.output_processor import RequestState
from vllm.v1.metrics.stats import IterationStats

from handler.engine.core_queue import CoreQueue
from handler.engine.v1.tokens import version_differences as versions
from handler.engine.v1.tokens.sink_collector import SinkCollector
from handler.engine.v1.tokens.step_statistics import StepStatistics

logger = logging.getLogger(__name__)

# How many messages are handled before the loop runs other tasks. The core sends one message per step.
MAX_MESSAGES = 8
# Seconds after which the loop runs other tasks. Its own clock stands still meanwhile.
LONGEST_TURN = 0.01
# Numbers: an operation on one of zmq's enumerations takes longer than to ask the socket.
EVENTS, READABLE = int(zmq.EVENTS), int(zmq.POLLIN)


class TokenPath:
    """Replaces vLLM's two tasks between the core's socket and the requests. Use it on the engine's loop only."""

    def __init__(self, llm: AsyncLLM, queue: CoreQueue, process_outputs: Callable[..., Any]) -> None:
        self._llm = llm
        self._client = llm.engine_core
        self._resources = llm.engine_core.resources
        self._processor = llm.output_processor
        self._states: dict[str, RequestState] = llm.output_processor.request_states
        self.statistics = StepStatistics(llm)
        # Of several cores: vLLM's client notes which requests of which core have ended.
        self._note_ended = getattr(type(llm.engine_core), "process_engine_outputs", None)
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = zmq.Socket.shadow(self._resources.output_socket)
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._queue = queue
        self._process_outputs = process_outputs
        self._open = True
        self._more = False
        self._unflushed: list[SinkCollector] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def install(cls, llm: AsyncLLM, queue: CoreQueue, process_outputs: Callable[..., Any]) -> TokenPath:
        """Call before the loop has run another task since `llm` was made, so that vLLM's own tasks never begin.

        :param queue: the queue in front of the core.
        :param process_outputs: vLLM's own function for the outputs of other requests.
        """
        path = llm.token_path = cls(llm, queue, process_outputs)
        for task in (llm.output_handler, path._resources.output_queue_task):
            if task is not None:
                task.cancel()
        guard = path._loop.create_task(path._guard(), name="TokenPath")
        llm.output_handler = path._resources.output_queue_task = guard
        path._loop.add_reader(path._fd, path._readable)
        path._loop.call_soon(path._readable)  # the descriptor signals changes only
        return path

    async def _guard(self) -> None:
        """The task that vLLM sees in place of its own. vLLM checks that it runs, and cancels it when the core dies."""
        try:
            await self._loop.create_future()
        finally:
            self._end(EngineDeadError())

    def _end(self, error: Exception) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)
            self._processor.propagate_error(error)
            for answer in self._client.utility_results.values():  # vLLM lets them wait for ever
                if not answer.done():
                    answer.set_exception(error)
            self.statistics.record()

    def _readable(self) -> None:
        again = False
        try:
            frames, end = self._receive(), time.monotonic() + LONGEST_TURN
            for place in range(MAX_MESSAGES):
                if frames is None:
                    break
                self._resources.validate_alive(frames)
                message = self._client.decoder.decode(frames)
                again = place == MAX_MESSAGES - 1 or time.monotonic() > end
                frames = self._receive() if not again and self._arrived() else None
                self._more = frames is not None
                self._take(message)
        except Exception as error:
            self._flush()
            if not isinstance(error, EngineDeadError):
                logger.exception("the engine's outputs cannot be read")
            self._resources.engine_dead = True
            self._end(error)
            return
        self._flush()
        if again:
            self._loop.call_soon(self._readable)

    def _receive(self) -> list[zmq.Frame] | None:
        """One message. None if none has arrived."""
        if not self._open or self._socket.closed:
            return None
        try:
            frames = [self._socket.recv(zmq.NOBLOCK, copy=False)]
        except zmq.Again:
            return None
        while frames[-1].more:
            frames.append(self._socket.recv(copy=False))
        return frames

    def _arrived(self) -> bool:
        """Whether there is another message. An exception costs more than to ask."""
        return not self._socket.closed and bool(int(self._socket.getsockopt(EVENTS)) & READABLE)

    def _flush(self) -> None:
        self._more = False
        if self._unflushed:
            collectors, self._unflushed = self._unflushed, []
            for collector in collectors:
                collector.flush()

    def _take(self, message: EngineCoreOutputs) -> None:
        if message.utility_output:
            _process_utility_output(message.utility_output, self._client.utility_results)
            return
        if self._note_ended is not None:
            self._run(self._note_ended(self._client, message))
        outputs = message.outputs
        if not outputs and not message.scheduler_stats:
            return
        stats = self.statistics.begin(message)
        gaps = self.statistics.gaps
        others: list[EngineCoreOutput] = []
        aborted: list[str] = []
        shown: bool | None = None
        for output in outputs:
            state = self._states.get(output.request_id)
            if state is None:  # aborted meanwhile
                continue
            if type(state.queue) is not SinkCollector or output.pooling_output is not None:
                shown = True
                others.append(output)
                continue
            if not shown and not state.is_prefilling:
                shown = not state.queue.whole
            try:
                if not self._push(state, output, message.timestamp, stats, gaps):
                    aborted.append(output.request_id)
            except Exception as error:  # the other requests of this step must not fail
                logger.exception("an output cannot be handled")
                state.queue.put(error)
        if others:
            step = versions.step_arguments(message)
            aborted += self._process_outputs(others, message.timestamp, stats, **step).reqs_to_abort
            versions.drop_missing_media(self._llm, others)
        if aborted:
            self._run(self._client.abort_requests_async(aborted))
        self._queue.step(shown)
        self._processor.update_scheduler_stats(message.scheduler_stats)
        self.statistics.end(message)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _push(
        self,
        state: RequestState,
        output: EngineCoreOutput,
        timestamp: float,
        stats: IterationStats | None,
        gaps: list[float],
    ) -> bool:
        """Handles one request's tokens of one step. False if the request has ended and the core does not know it yet.

        :param gaps: the time since the request's last token is added to it.
        """
        collector: SinkCollector = state.queue
        ids, finish, reason = output.new_token_ids, output.finish_reason, output.stop_reason
        count = len(ids)
        collector.made += count
        if stats is not None:
            if state.is_prefilling or output.events is not None:
                self._processor._update_stats_from_output(state, output, timestamp, stats)
            else:
                seen = state.stats
                stats.num_generation_tokens += count
                seen.num_generation_tokens += count
                gaps.append(timestamp - seen.last_token_ts)
                seen.last_token_ts = timestamp
        if state.is_prefilling:
            versions.end_prefill(state, output)
            collector.use_detokenizer(state.detokenizer)
        if collector.plain:
            shown = ids
            if finish == FinishReason.STOP and not state.detokenizer.include_stop_str_in_output:
                shown = ids[:-1]
            text = ""
            for token in shown:
                try:
                    text += collector.step(collector.tokenizer, token) or ""
                except Exception:  # vLLM handles a token that the decoder rejects, and goes on from there
                    text += state.detokenizer._protected_step(token) or ""
                    collector.step = state.detokenizer.stream.step
            if collector.whole:
                collector.keep(text, ids)
        else:
            stop = versions.update_text(state, output, finish == FinishReason.STOP)
            if stop:
                finish, reason = FinishReason.STOP, stop
            if finish is not None or not collector.whole:
                text = state.detokenizer.get_next_output_text(finish is not None, not collector.whole)
                ids = state.detokenizer.output_token_ids if collector.whole else ids
        if finish is None:
            if collector.whole:
                return True
            if collector.ids:
                collector.keep(text, ids)
            elif self._more and not collector.apart:
                collector.keep(text, ids)
                self._unflushed.append(collector)
            else:
                collector.sink.push(text, ids, None, None)
            return True
        if collector.ids:
            if not collector.whole:
                collector.keep(text, ids)
            text, ids = collector.kept()
        self._queue.replied(collector.made)
        self._processor._finish_request(state)
        self._processor._update_stats_from_finished(state, finish, stats)
        if collector.times is not None and state.stats is not None:
            seen = state.stats
            collector.times(seen.queued_ts, seen.scheduled_ts, seen.first_token_ts, seen.last_token_ts)
        if self._processor.tracing_enabled and stats is not None:
            self._processor.do_tracing(output, state, stats)
        collector.end(text, ids, str(finish), reason)
        return output.finish_reason is not None
