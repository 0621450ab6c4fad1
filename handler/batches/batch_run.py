"""One batch while it runs: begins its requests, stores their replies, and writes its files."""

from __future__ import annotations

import logging
import time
from _thread import LockType
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final

import msgspec

from handler.batches.batch_input import BatchLine, decoded_row, expired_row, reply_row, succeeded_row
from handler.batches.batch_objects import BATCH_PREFIX, FILE_PREFIX, BatchObject, BatchStatus, RequestCounts
from handler.batches.batch_store import BatchStore
from handler.engine.api_routes import Route
from handler.engine.core_queue import GROUP, RequestGroup
from handler.errors import Draining, EndpointError, EngineFailed, GenerationFailed, InvalidField
from handler.schemas.batch import LineSink
from handler.schemas.dispatch import parse_route
from handler.schemas.reply import RunningCall
from handler.startup.lifecycle import ServingStatus
from handler.startup.serving_state import ServingState

logger = logging.getLogger(__name__)
PAUSE: Final = 0.1  # seconds between two looks at the engine while it is busy
# vLLM's scheduler runs a smaller number first. Live requests have 0.
PRIORITY: Final = 1000


@dataclass(slots=True)
class BatchProgress:
    """What the routes know of batches and the store does not.

    :ivar counts: those of the running batch.
    :ivar cancelled: ids of batches that a client has cancelled.
    :ivar lock: held while the state of a batch is read and changed.
    """

    counts: dict[str, RequestCounts] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    lock: LockType = field(default_factory=Lock)


def is_ready(state: ServingState) -> bool:
    return state.lifecycle.status.state is ServingStatus.READY


def is_draining(state: ServingState) -> bool:
    return state.lifecycle.status.state is ServingStatus.DRAINING


@dataclass(slots=True)
class BatchRun:
    """One batch while it runs.

    :ivar answered: whether each stored reply is one, and not an error.
    :ivar alone: there are no live requests, so it may have every slot. Otherwise half of them.
    """

    state: ServingState
    store: BatchStore
    progress: BatchProgress
    batch: BatchObject
    waiting: deque[BatchLine]
    answered: dict[str, bool]
    running: dict[int, tuple[BatchLine, RunningCall]] = field(default_factory=dict)
    ended: SimpleQueue[LineSink | None] = field(default_factory=SimpleQueue)
    begun: int = 0
    group: RequestGroup = field(default_factory=RequestGroup)
    alone: bool = False

    def answer(self) -> None:
        """Answers the requests, and ends the batch unless the endpoint ends first."""
        status: BatchStatus | None = BatchStatus.COMPLETED
        self._count()
        engine = self.state.engine
        try:
            while self.waiting or self.running:
                status = self._stopped()
                if status is not BatchStatus.COMPLETED:
                    break
                rows = [] if not self._free() or not self.waiting else self._begin(self.waiting.popleft())
                rows += self._taken(wait=not rows and (not self.waiting or not self._free()))
                if rows:
                    self._store(rows)
        finally:  # after an error of the store, too: the next try asks them again
            if engine is not None:
                for _, call in self.running.values():
                    engine.loop.call(call.cancel)
        if status is not None:
            self.finish(status)
        elif self.batch.resumes and is_draining(self.state):  # its engine may have been stopped already
            with self.progress.lock:  # it was not the batch's fault
                self.store.save(msgspec.structs.replace(self.store.batch(self.batch.id), resumes=0))

    def _stopped(self) -> BatchStatus | None:
        """COMPLETED: go on. None: the endpoint ends, and its next start goes on."""
        if self.batch.id in self.progress.cancelled or self.batch.status is BatchStatus.CANCELLING:
            return BatchStatus.CANCELLED
        if time.time() > self.batch.expires_at:
            return BatchStatus.EXPIRED
        engine = self.state.engine
        return BatchStatus.COMPLETED if is_ready(self.state) and engine is not None and not engine.dead() else None

    def _free(self) -> bool:
        engine = self.state.ready_engine()
        return max(self.state.unfinished(), len(self.running)) < (
            engine.slots if self.alone else max(1, engine.slots // 2)
        )

    def _begin(self, line: BatchLine) -> list[bytes]:
        """Begins a request. The line of its error, if it cannot begin."""
        engine, body = self.state.ready_engine(), dict(line.body)
        if engine.traits.priorities:
            body.setdefault("priority", PRIORITY)
        try:
            call = parse_route(Route(self.batch.endpoint), body, engine)
            if call.stream:
                raise InvalidField("stream", "a request of a batch cannot be streamed: leave it out")
            self.begun += 1
            sink = LineSink(self.begun, call, self.ended.put)
            self.running[self.begun] = line, call.request(engine, sink)
        except EndpointError as error:
            return [self._error_row(line, error)]
        except Exception as error:
            return [self._error_row(line, unexpected(error))]
        engine.loop.call(_begin_call, self.running[self.begun][1], self.group)
        return []

    def _taken(self, *, wait: bool) -> list[bytes]:
        """The lines of the requests that have ended."""
        rows = []
        try:
            sink = self.ended.get(wait, PAUSE)
            while sink is not None:
                line, _ = self.running.pop(sink.index)
                if isinstance(sink.error, EngineFailed | Draining):
                    self.waiting.appendleft(line)
                else:
                    rows.append(self._reply_row(line, sink))
                sink = self.ended.get_nowait()
        except Empty:
            pass
        return rows

    def _reply_row(self, line: BatchLine, sink: LineSink) -> bytes:
        if sink.error is not None:
            return self._error_row(line, sink.error)
        try:
            return self._row(line, 200, msgspec.Raw(sink.reply.whole(*sink.output)))
        except Exception as error:
            return self._error_row(line, unexpected(error))

    def _error_row(self, line: BatchLine, error: EndpointError) -> bytes:
        return self._row(line, error.status, error.document())

    def _row(self, line: BatchLine, status: int, body: object) -> bytes:
        self.answered[line.custom_id] = status == 200
        return reply_row(line.custom_id, status, body)

    def _store(self, rows: list[bytes]) -> None:
        self.store.add_replies(self.batch.id, rows)
        self._count()

    def _count(self) -> None:
        completed = sum(self.answered.values())
        total = self.batch.request_counts.total
        self.progress.counts[self.batch.id] = RequestCounts(
            total=total, completed=completed, failed=len(self.answered) - completed
        )

    def finish(self, status: BatchStatus, errors: Any = None) -> None:
        """Writes the files of the replies and of the errors, and the last state of the batch."""
        if status is BatchStatus.EXPIRED:
            left = [*self.waiting, *(line for line, _ in self.running.values())]
            self.answered.update((line.custom_id, False) for line in left)
            if left:
                self._store([expired_row(line.custom_id) for line in left])
        self._count()
        batch = self.batch.entered(BatchStatus.FINALIZING, request_counts=self.progress.counts[self.batch.id])
        files = [self._write(succeeded) for succeeded in (True, False)]
        with self.progress.lock:
            cancelling_at = self.store.batch(batch.id).cancelling_at
            changes = {"errors": errors, "cancelling_at": cancelling_at}
            self.batch = batch.entered(status, output_file_id=files[0], error_file_id=files[1], **changes)
            self.store.save(self.batch)
        logger.info("batch %s: %s, %s", self.batch.id, status, self.batch.request_counts)

    def _write(self, succeeded: bool) -> str | None:
        """Writes the file of all replies or of all errors, at an id of the batch's own: a second try replaces it.

        :returns: its id. None if there are none.
        """
        if succeeded not in self.answered.values():
            return None
        kind = "output" if succeeded else "error"
        name = f"{self.batch.id}_{kind}.jsonl"
        identity = f"{FILE_PREFIX}{self.batch.id.removeprefix(BATCH_PREFIX)[:-1]}{succeeded:d}"
        return self.store.add_file(name, "batch_output", self._lines(succeeded), identity).id

    def _lines(self, succeeded: bool) -> Iterator[bytes]:
        written: set[str] = set()
        for line in self.store.replies(self.batch.id):
            row = decoded_row(line)
            if succeeded_row(row) is succeeded and row.custom_id not in written:
                written.add(row.custom_id)
                yield line + b"\n"


def _begin_call(call: RunningCall, group: RequestGroup) -> None:
    """Begins a call. Runs on the engine's loop."""
    GROUP.set(group)
    try:
        call.begin()
    except Exception as error:
        call.end(unexpected(error))


def unexpected(error: Exception) -> GenerationFailed:
    """The error of a request that a fault of ours ends. Logs the fault, so the batch and the others go on."""
    logger.error("a request of a batch has failed unexpectedly", exc_info=error)
    return GenerationFailed(type(error).__name__)
