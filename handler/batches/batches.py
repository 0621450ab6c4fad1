"""What the routes of the Files and Batch APIs call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Lock, Thread
from typing import Any, Final

import msgspec

from handler.batches.batch_input import INPUT, ROUTES, read_lines
from handler.batches.batch_objects import (
    BATCH_PREFIX,
    BatchEnded,
    BatchObject,
    BatchStatus,
    FileObject,
    RequestCounts,
    new_id,
)
from handler.batches.batch_runner import BatchRunner
from handler.batches.batch_store import BatchStore
from handler.config.start_rules import store_uri
from handler.engine.api_routes import Route
from handler.errors import InvalidField, UnsupportedField
from handler.startup.serving_state import ServingState
from handler.storage.open_store import open_objects

SETTING: Final = "ENDPOINT_BATCH_STORE"
WINDOW: Final = "24h"
WINDOW_SECONDS: Final = 24 * 3600
PURPOSE: Final = "batch"
MAX_METADATA: Final = 16
KEPT: Final = "files are kept until somebody deletes them: leave it out"


class BatchFields(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request that creates a batch."""

    input_file_id: str | None = None
    endpoint: str | None = None
    completion_window: str | None = None
    metadata: dict[str, str] | None = None
    output_expires_after: dict[str, Any] | None = None


class Batches:
    """The files and batches of this endpoint, and the thread that runs the batches.

    :param alone: there are no live requests, so a batch may have every slot.
    """

    def __init__(self, state: ServingState, location: str, *, alone: bool = False) -> None:
        self.store = BatchStore(open_objects(store_uri(location), SETTING))
        self._runner = BatchRunner(state, self.store, alone=alone)
        self._reading = Lock()  # one input file at a time: its bytes are in no request's budget

    def start(self) -> None:
        """Starts the thread. Call in the process that owns the engine."""
        Thread(target=self._runner.run, name="batches", daemon=True).start()

    def add_file(self, filename: str, purpose: str, content: bytes) -> FileObject:
        """:raises InvalidField: it is not for a batch, or is empty."""
        if purpose != PURPOSE:
            raise InvalidField("purpose", f"it must be '{PURPOSE}'")
        if not content.strip():
            raise InvalidField("file", "it is empty")
        return self.store.add_file(filename[:255], purpose, [content])

    def create(self, fields: BatchFields) -> BatchObject:
        """Checks the input of a batch, and queues it.

        :raises InvalidField, NothingStored: a field or a line of the input cannot be used.
        """
        if fields.endpoint not in list(ROUTES):
            raise InvalidField("endpoint", f"it must be one of {', '.join(ROUTES)}")
        if fields.completion_window != WINDOW:
            raise InvalidField("completion_window", f"it must be '{WINDOW}'")
        if not fields.input_file_id:
            raise InvalidField(INPUT, "send the id of an uploaded file")
        if fields.output_expires_after:
            raise UnsupportedField("output_expires_after", KEPT)
        _check_metadata(fields.metadata)
        endpoint = Route(fields.endpoint)
        with self._reading:
            content = b"".join(self.store.content(fields.input_file_id, INPUT))
            total = sum(1 for _ in read_lines(content, endpoint))
        now = int(time.time())
        batch = BatchObject(
            id=new_id(BATCH_PREFIX),
            endpoint=endpoint,
            input_file_id=fields.input_file_id,
            completion_window=WINDOW,
            created_at=now,
            expires_at=now + WINDOW_SECONDS,
            request_counts=RequestCounts(total=total),
            metadata=fields.metadata,
        )
        self.store.save(batch)
        self._runner.wake.set()
        return batch

    def get(self, identity: str) -> BatchObject:
        """:raises NothingStored: there is no such batch."""
        batch = self.store.batch(identity)
        counts = self._runner.progress.counts.get(identity)
        if counts is None or batch.status.ended:
            return batch
        cancelling = identity in self._runner.progress.cancelled
        status = BatchStatus.CANCELLING if cancelling else batch.status
        return msgspec.structs.replace(batch, request_counts=counts, status=status)

    def cancel(self, identity: str) -> BatchObject:
        """:raises BatchEnded: the batch has ended. Replies that are there are kept."""
        with self._runner.progress.lock:
            batch = self.store.batch(identity)
            if batch.status.ended:
                raise BatchEnded(identity, batch.status)
            if batch.status is BatchStatus.VALIDATING:  # it has no replies: it does not wait for its turn
                self.store.save(batch.entered(BatchStatus.CANCELLING).entered(BatchStatus.CANCELLED))
            elif batch.status is not BatchStatus.CANCELLING:
                self._runner.progress.cancelled.add(identity)
                batch = batch.entered(BatchStatus.CANCELLING)
                self.store.save(batch)
                self._runner.wake.set()
        return self.get(identity)


def _check_metadata(metadata: Mapping[str, Any] | None) -> None:
    """:raises InvalidField: beyond OpenAI's limits."""
    for key, value in (metadata or {}).items():
        if len(key) > 64 or len(value) > 512:
            raise InvalidField("metadata", "a key has at most 64 characters and a value at most 512")
    if metadata is not None and len(metadata) > MAX_METADATA:
        raise InvalidField("metadata", f"it has at most {MAX_METADATA} keys")
