"""Errors of the Files and Batch APIs."""

from __future__ import annotations

from handler.errors import ClientError, ServerError


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
