"""Answers the requests of batches, one batch after the other, in the order in which they were made.

A request of a batch begins only while less than half of the engine's slots are in use. So live requests always find
the other half free of batches, and a busy engine runs no batch. Where the scheduler has priorities, a batch's requests
also have a lower one. A reply is stored before it counts as answered. A restart asks only what has no stored reply.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from threading import Event
from typing import Final

import msgspec

from handler.batches.batch_input import INPUT, batch_errors, decoded_row, is_expired_row, read_lines, succeeded_row
from handler.batches.batch_objects import BatchObject, BatchStatus, RecordDamaged
from handler.batches.batch_run import PAUSE, BatchProgress, BatchRun, is_ready
from handler.batches.batch_store import BatchStore
from handler.engine.api_routes import Route
from handler.errors import ClientError, EndpointError, NothingStored
from handler.startup.lifecycle import ServingStatus
from handler.startup.serving_state import ServingState

logger = logging.getLogger(__name__)
# Starts with the same batch and without a new reply after which the batch has failed: one of its requests may end the
# engine.
MAX_RESUMES: Final = 3


@dataclass(slots=True)
class BatchRunner:
    """Runs batches in a thread of its own.

    :ivar ended: ids of batches that need not be read again.
    :ivar begun: ids of batches that this process has begun or gone on with: only its first try of each is a start.
    :ivar wake: set when there is a new batch.
    """

    state: ServingState
    store: BatchStore
    progress: BatchProgress = field(default_factory=BatchProgress)
    ended: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    wake: Event = field(default_factory=Event)
    alone: bool = False

    def run(self) -> None:
        """Runs every batch that has not ended, and then those that are made. Ends when the endpoint drains."""
        while self.state.lifecycle.status.state is ServingStatus.STARTING:
            time.sleep(PAUSE)
        while is_ready(self.state):
            self.wake.clear()
            try:
                self._run_all()
            except EndpointError as error:  # the store: the next try may find it again
                logger.error("a batch waits: %s", error.message)
            self.wake.wait(30.0)

    def _run_all(self) -> None:
        for identity in reversed(self.store.batch_ids()):
            if identity in self.ended or not is_ready(self.state):
                continue
            try:
                if self._has_ended(identity):
                    self.ended.add(identity)
            except EndpointError as error:  # the store, or what this batch has there: the next try may read it
                logger.error("batch %s waits: %s", identity, error.message)

    def _has_ended(self, identity: str) -> bool:
        """Runs a batch. Whether it need not be looked at again."""
        try:
            batch = self.store.batch(identity)
        except NothingStored:  # deleted after it was listed, or an object that is no batch
            return False
        except RecordDamaged as error:  # the others run
            logger.error("a batch is left out: %s", error.message)
            return True
        if not batch.status.ended:
            try:
                self._run(batch)
            except EndpointError:
                raise
            except Exception as error:  # a fault of ours: this batch has failed, the others run
                logger.exception("batch %s has failed unexpectedly", identity)
                problem = f"The endpoint could not run this batch ({type(error).__name__}): its log has more."
                self._fail(identity, "internal_error", problem)
            self.progress.counts.pop(identity, None)
        return self.store.batch(identity).status.ended

    def _run(self, batch: BatchObject) -> None:
        try:
            content = b"".join(self.store.content(batch.input_file_id, INPUT))
            lines = [*read_lines(content, Route(batch.endpoint))]
        except (ClientError, RecordDamaged) as error:  # the file was deleted, or is damaged
            self._fail(batch.id, error.code, error.message)
            return
        resumed = batch.status is not BatchStatus.VALIDATING and batch.id not in self.begun
        rows = [decoded_row(row) for row in self.store.replies(batch.id)]
        answered = {row.custom_id: succeeded_row(row) for row in rows}
        run = BatchRun(
            self.state,
            self.store,
            self.progress,
            batch,
            deque(line for line in lines if line.custom_id not in answered),
            answered,
            alone=self.alone,
        )
        resumes = batch.resumes + 1 if resumed and batch.replies_at_resume == len(answered) else 0
        if resumes >= MAX_RESUMES and batch.status is not BatchStatus.CANCELLING:
            problem = "The engine ended several times while it ran this batch: run its requests one by one."
            run.finish(BatchStatus.FAILED, batch_errors("engine_failed", problem))
            return
        changes = {} if batch.id in self.begun else {"resumes": resumes, "replies_at_resume": len(answered)}
        with self.progress.lock:
            batch = self.store.batch(batch.id)  # a client may have cancelled it while its input was read
            if batch.status.ended:
                return
            if batch.status is BatchStatus.VALIDATING:
                batch = batch.entered(BatchStatus.IN_PROGRESS)
            run.batch = msgspec.structs.replace(batch, **changes)
            self.store.save(run.batch)
        self.begun.add(batch.id)
        if any(map(is_expired_row, rows)):  # its last state could not be stored
            run.finish(BatchStatus.EXPIRED)
        else:
            run.answer()

    def _fail(self, identity: str, code: str, message: str) -> None:
        with self.progress.lock:
            batch = self.store.batch(identity)
            if not batch.status.ended:
                self.store.save(batch.entered(BatchStatus.FAILED, errors=batch_errors(code, message)))
