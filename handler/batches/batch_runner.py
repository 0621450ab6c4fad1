"""Answers the requests of batches, one batch after the other, in the order in which they were made.

A request of a batch begins only while less than half of the engine's slots are in use. So live requests always find
the other half free of batches, and a busy engine runs no batch. Where the scheduler has priorities, a batch's requests
also have a lower one. A reply is stored before it counts as answered. A restart asks only what has no stored reply.
"""

from __future__ import annotations

import logging
import time
import uuid
from _thread import LockType
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Any, Final

import msgspec

from handler.batches.batch_input import INPUT, BatchLine, read_lines
from handler.batches.batch_objects import BatchObject, BatchStatus, RequestCounts
from handler.batches.batch_store import BatchStore
from handler.engine.api_routes import Route
from handler.engine.engine import Engine
from handler.errors import ClientError, Draining, EndpointError, EngineFailed, InvalidField
from handler.schemas.batch import LineSink
from handler.schemas.dispatch import parse_route
from handler.schemas.reply import RunningCall, encode
from handler.startup.lifecycle import ServingStatus
from handler.startup.serving_state import ServingState

logger = logging.getLogger(__name__)
PAUSE: Final = 0.1  # seconds between two looks at the engine while it is busy
# vLLM's scheduler runs a smaller number first. Live requests have 0.
PRIORITY: Final = 1000
# Starts with the same batch and without a new reply after which the batch has failed: one of its requests may end the
# engine.
MAX_RESUMES: Final = 3


@dataclass(slots=True)
class BatchRunner:
    """Runs batches in a thread of its own.

    :ivar counts: those of the running batch, newer than in the store.
    :ivar cancelled: ids of batches that a client has cancelled.
    :ivar wake: set when there is a new batch.
    :ivar lock: held while the state of a batch is read and changed.
    """

    state: ServingState
    store: BatchStore
    counts: dict[str, RequestCounts] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    wake: Event = field(default_factory=Event)
    lock: LockType = field(default_factory=Lock)

    def run(self) -> None:
        """Runs every batch that has not ended, and then those that are made. Ends when the endpoint drains."""
        while self.state.lifecycle.status.state is ServingStatus.STARTING:
            time.sleep(PAUSE)
        while self._ready():
            self.wake.clear()
            try:
                self._run_all()
            except EndpointError as error:  # the store: the next try may find it again
                logger.error("a batch waits: %s", error.message)
            self.wake.wait(30.0)

    def _run_all(self) -> None:
        for identity in reversed(self.store.batch_ids()):
            batch = self.store.batch(identity)
            if not batch.status.ended and self._ready():
                self._run(batch)
                self.counts.pop(identity, None)

    def _ready(self) -> bool:
        return self.state.lifecycle.status.state is ServingStatus.READY

    def _run(self, batch: BatchObject) -> None:
        try:
            lines = read_lines(b"".join(self.store.content(batch.input_file_id, INPUT)), Route(batch.endpoint))
        except ClientError as error:  # the file was deleted
            self.store.save(batch.entered(BatchStatus.FAILED, errors=_errors(error.code, error.message)))
            return
        began = batch.status is not BatchStatus.VALIDATING
        answered = {row["custom_id"]: _succeeded(row) for row in map(_decoded, self.store.replies(batch.id))}
        run = _Run(self, batch, deque(line for line in lines if line.custom_id not in answered), answered)
        resumes = batch.resumes + 1 if began and batch.replies_at_resume == len(answered) else 0
        if resumes >= MAX_RESUMES:
            problem = "The engine ended several times while it ran this batch: run its requests one by one."
            run.finish(BatchStatus.FAILED, _errors("engine_failed", problem))
            return
        changes = {"resumes": resumes, "replies_at_resume": len(answered)}
        if not began:
            run.batch = batch.entered(BatchStatus.IN_PROGRESS, **changes)
        else:
            run.batch = msgspec.structs.replace(batch, **changes)
        self.store.save(run.batch)
        run.answer()


@dataclass(slots=True)
class _Run:
    """One batch while it runs.

    :ivar answered: whether each stored reply is one, and not an error.
    """

    runner: BatchRunner
    batch: BatchObject
    waiting: deque[BatchLine]
    answered: dict[str, bool]
    running: dict[int, tuple[BatchLine, RunningCall]] = field(default_factory=dict)
    ended: SimpleQueue[LineSink | None] = field(default_factory=SimpleQueue)
    begun: int = 0

    def answer(self) -> None:
        """Answers the requests, and ends the batch unless the endpoint ends first."""
        status: BatchStatus | None = BatchStatus.COMPLETED
        self._count()
        while self.waiting or self.running:
            status = self._stopped()
            if status is not BatchStatus.COMPLETED:
                break
            rows = [] if not self._free() or not self.waiting else self._begin(self.waiting.popleft())
            rows += self._taken(wait=not rows and (not self.waiting or not self._free()))
            if rows:
                self._store(rows)
        engine = self.runner.state.engine
        for _, call in self.running.values() if engine is not None else ():
            engine.loop.call(call.cancel)  # type: ignore[union-attr]
        if status is not None:
            self.finish(status)
        elif self.batch.resumes and engine is not None and not engine.dead():
            self.runner.store.save(msgspec.structs.replace(self.batch, resumes=0))  # it was not the batch's fault

    def _stopped(self) -> BatchStatus | None:
        """COMPLETED: go on. None: the endpoint ends, and its next start goes on."""
        if self.batch.id in self.runner.cancelled or self.batch.status is BatchStatus.CANCELLING:
            return BatchStatus.CANCELLED
        if time.time() > self.batch.expires_at:
            return BatchStatus.EXPIRED
        engine = self.runner.state.engine
        return BatchStatus.COMPLETED if self.runner._ready() and engine is not None and not engine.dead() else None

    def _free(self) -> bool:
        engine = self._engine()
        return max(self.runner.state.unfinished(), len(self.running)) < max(1, engine.slots // 2)

    def _engine(self) -> Engine:
        return self.runner.state.ready_engine()

    def _begin(self, line: BatchLine) -> list[bytes]:
        """Begins a request. The line of its error, if it cannot begin."""
        engine, body = self._engine(), dict(line.body)
        if engine.traits.priorities:
            body.setdefault("priority", PRIORITY)
        try:
            call = parse_route(Route(self.batch.endpoint), body, engine)
            if call.stream:
                raise InvalidField("stream", "a request of a batch cannot be streamed: leave it out")
            self.begun += 1
            sink = LineSink(self.begun, call.reply, self.ended)
            self.running[self.begun] = line, call.request(engine, sink)
        except EndpointError as error:
            return [self._row(line, error.status, error.document())]
        engine.loop.call(self.running[self.begun][1].begin)
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
                elif sink.error is not None:
                    rows.append(self._row(line, sink.error.status, sink.error.document()))
                else:
                    rows.append(self._row(line, 200, msgspec.Raw(sink.reply.whole(*sink.output))))
                sink = self.ended.get_nowait()
        except Empty:
            pass
        return rows

    def _row(self, line: BatchLine, status: int, body: object, error: object = None) -> bytes:
        """A line of an output or error file."""
        response = None if error else {"status_code": status, "request_id": uuid.uuid4().hex, "body": body}
        identity = f"batch_req_{uuid.uuid4().hex}"
        self.answered[line.custom_id] = status == 200 and not error
        return encode({"id": identity, "custom_id": line.custom_id, "response": response, "error": error})

    def _store(self, rows: list[bytes]) -> None:
        self.runner.store.add_replies(self.batch.id, rows)
        self._count()

    def _count(self) -> None:
        completed = sum(self.answered.values())
        total = self.batch.request_counts.total
        self.runner.counts[self.batch.id] = RequestCounts(
            total=total, completed=completed, failed=len(self.answered) - completed
        )

    def finish(self, status: BatchStatus, errors: Any = None) -> None:
        """Writes the files of the replies and of the errors, and the last state of the batch."""
        if status is BatchStatus.EXPIRED:
            problem = {"code": "batch_expired", "message": "This request was not run before the batch expired."}
            left = [*self.waiting, *(line for line, _ in self.running.values())]
            if left:
                self._store([self._row(line, 0, None, problem) for line in left])
        self._count()
        batch = self.batch.entered(BatchStatus.FINALIZING, request_counts=self.runner.counts[self.batch.id])
        files = [self._write(succeeded) for succeeded in (True, False)]
        with self.runner.lock:
            cancelling_at = self.runner.store.batch(batch.id).cancelling_at
            changes = {"errors": errors, "cancelling_at": cancelling_at}
            self.batch = batch.entered(status, output_file_id=files[0], error_file_id=files[1], **changes)
            self.runner.store.save(self.batch)
        logger.info("batch %s: %s, %s", self.batch.id, status, self.batch.request_counts)

    def _write(self, succeeded: bool) -> str | None:
        """Writes the file of all replies or of all errors. None if there are none."""
        if succeeded not in self.answered.values():
            return None
        kind = "output" if succeeded else "error"
        name = f"{self.batch.id}_{kind}.jsonl"
        return self.runner.store.add_file(name, "batch_output", self._lines(succeeded)).id

    def _lines(self, succeeded: bool) -> Iterator[bytes]:
        written: set[str] = set()
        for line in self.runner.store.replies(self.batch.id):
            row = _decoded(line)
            if _succeeded(row) is succeeded and row["custom_id"] not in written:
                written.add(row["custom_id"])
                yield line + b"\n"


def _errors(code: str, message: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"code": code, "message": message, "line": None, "param": None}]}


def _decoded(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.json.decode(line)
    return row


def _succeeded(row: dict[str, Any]) -> bool:
    return row["error"] is None and row["response"]["status_code"] == 200
