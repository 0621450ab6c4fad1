"""The lines of a batch's output and error files, and the errors of a whole batch: OpenAI's Batch API reference."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from handler.schemas.reply import encode


def reply_row(custom_id: str, status: int, body: object) -> bytes:
    """The line of a request that has a reply."""
    return _row(custom_id, {"status_code": status, "request_id": uuid.uuid4().hex, "body": body}, None)


def expired_row(custom_id: str) -> bytes:
    """The line of a request that was not run in time."""
    problem = {"code": "batch_expired", "message": "This request was not run before the batch expired."}
    return _row(custom_id, None, problem)


def _row(custom_id: str, response: object, error: object) -> bytes:
    identity = f"batch_req_{uuid.uuid4().hex}"
    return encode({"id": identity, "custom_id": custom_id, "response": response, "error": error})


def decoded_row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.json.decode(line)
    return row


def succeeded_row(row: dict[str, Any]) -> bool:
    return row["error"] is None and row["response"]["status_code"] == 200


def batch_errors(code: str, message: str) -> dict[str, Any]:
    """The `errors` of a batch that has failed."""
    return {"object": "list", "data": [{"code": code, "message": message, "line": None, "param": None}]}
