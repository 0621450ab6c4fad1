"""The lines of a batch's files: a request with an id of its own in the input, a reply or an error in the output."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handler.engine.api_routes import Route
from handler.errors import InvalidBody, InvalidField
from handler.schemas.json_body import decode
from handler.schemas.reply import encode

MAX_LINES: Final = 50_000  # OpenAI's
MAX_CUSTOM_ID: Final = 512
INPUT: Final = "input_file_id"
EXPIRED: Final = {"code": "batch_expired", "message": "This request was not run before the batch expired."}
# The routes that a batch may use: those of OpenAI's Batch API that vLLM has.
ROUTES: Final = (Route.CHAT, Route.COMPLETIONS, Route.EMBEDDINGS, Route.RESPONSES)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request of a batch."""

    custom_id: str
    body: dict[str, Any]


class RowResponse(msgspec.Struct, frozen=True):
    """The part of a reply that is read again: not its body, which may be large."""

    status_code: int


class ReplyRow(msgspec.Struct, frozen=True):
    """A stored line of a request that has ended."""

    custom_id: str
    response: RowResponse | None
    error: object


_ROWS: Final = msgspec.json.Decoder(ReplyRow)


def read_lines(content: bytes, endpoint: Route) -> Iterator[BatchLine]:
    """The requests of an input file, one by one: decoded, many are twenty times as large. Empty lines are skipped.

    :raises InvalidField: a line cannot be used. The error names the line and its field.
    """
    seen: set[str] = set()
    for number, text in numbered(content):
        line = _line(number, text, endpoint)
        if line.custom_id in seen:
            raise InvalidField(INPUT, f"'custom_id' {line.custom_id[:100]!r} is on two lines")
        seen.add(line.custom_id)
        yield line
    if not seen:
        raise InvalidField(INPUT, "the file has no lines")


def numbered(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers.

    :raises InvalidField: there are too many.
    """
    if content.count(b"\n") > MAX_LINES:
        raise InvalidField(INPUT, f"the file has more than {MAX_LINES:,} lines")
    return ((number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip())


def _line(number: int, line: bytes, endpoint: Route) -> BatchLine:
    def wrong(problem: str) -> InvalidField:
        return InvalidField(INPUT, f"line {number}: {problem}")

    try:
        document = decode(line)
    except InvalidBody as error:
        raise wrong(error.message.removeprefix("The request body cannot be read: ").split(". Send one")[0]) from None
    if unknown := sorted(document.keys() - {"custom_id", "method", "url", "body"}):
        raise wrong(f"'{unknown[0][:100]}' is not known: a line has 'custom_id', 'method', 'url' and 'body'")
    custom_id, body = document.get("custom_id"), document.get("body")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        raise wrong(f"'custom_id' must be a text of 1 to {MAX_CUSTOM_ID} characters")
    if document.get("method") != "POST":
        raise wrong("'method' must be 'POST'")
    if document.get("url") != endpoint:
        raise wrong(f"'url' must be the batch's endpoint, '{endpoint}'")
    if not isinstance(body, dict):
        raise wrong("'body' must be an object")
    return BatchLine(custom_id, body)


def reply_row(custom_id: str, status: int, body: object) -> bytes:
    """The line of a request that has a reply."""
    return _row(custom_id, {"status_code": status, "request_id": uuid.uuid4().hex, "body": body}, None)


def expired_row(custom_id: str) -> bytes:
    """The line of a request that was not run in time."""
    return _row(custom_id, None, EXPIRED)


def is_expired_row(row: ReplyRow) -> bool:
    return row.error == EXPIRED


def _row(custom_id: str, response: object, error: object) -> bytes:
    identity = f"batch_req_{uuid.uuid4().hex}"
    return encode({"id": identity, "custom_id": custom_id, "response": response, "error": error})


def decoded_row(line: bytes) -> ReplyRow:
    return _ROWS.decode(line)


def succeeded_row(row: ReplyRow) -> bool:
    return row.error is None and row.response is not None and row.response.status_code == 200


def batch_errors(code: str, message: str) -> dict[str, Any]:
    """The `errors` of a batch that has failed."""
    return {"object": "list", "data": [{"code": code, "message": message, "line": None, "param": None}]}
