"""The objects of OpenAI's Files and Batch APIs, as clients see them and as the store keeps them, and their errors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from handler.errors import ClientError, ServerError

FILE_PREFIX: Final = "file-"
BATCH_PREFIX: Final = "batch_"


class BatchStatus(StrEnum):
    """The states of a batch, as OpenAI names them."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file. `created_at` is in seconds since the epoch."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a batch: all, those with a reply, those with an error."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. Times are in seconds since the epoch."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    request_counts: RequestCounts
    status: BatchStatus = BatchStatus.VALIDATING
    object: Literal["batch"] = "batch"
    metadata: Mapping[str, str] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Mapping[str, Any] | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    # Starts in a row that went on with it and stored no reply, and the stored replies then. OpenAI has no such fields.
    resumes: int = 0
    replies_at_resume: int = 0

    def entered(self, status: BatchStatus, **changes: Any) -> BatchObject:
        """The batch in another state, with the time of the change."""
        changes[f"{status}_at"] = int(time.time())
        return msgspec.structs.replace(self, status=status, **changes)


def new_id(prefix: str) -> str:
    """A new id. Ids sort by the time at which they were made."""
    return f"{prefix}{time.time_ns() // 1_000_000:012x}{uuid.uuid4().hex[:20]}"


class BatchesOff(ClientError):
    """The endpoint has no place for files and batches."""

    status = 404
    code = "batches_off"

    def __init__(self) -> None:
        super().__init__(
            "Files and batches are off on this endpoint: set ENDPOINT_BATCH_STORE to a directory or s3://bucket/prefix."
        )


class BatchEnded(ClientError):
    """A batch that has ended cannot be cancelled."""

    status = 409
    code = "batch_ended"

    def __init__(self, identity: str, status: str) -> None:
        super().__init__(f"The batch '{identity}' cannot be cancelled: it is {status}.", param="batch_id")


class RecordDamaged(ServerError):
    """The record of a file or a batch is not one."""

    code = "record_damaged"

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"'{key}' in ENDPOINT_BATCH_STORE cannot be read: {problem}. Delete it.")
