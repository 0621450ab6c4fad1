"""Reads a request's body within its limits: kind, size and time, each with an error that says so."""

from __future__ import annotations

import socket
from collections.abc import Collection

from flask import Request
from gunicorn.http.errors import ParseException

from container.connection.read_timeouts import ReadTimeouts
from handler.errors import BodyTooLarge, InvalidBody, RequestTimedOut, UnsupportedMediaType

BODY_SECONDS = 60.0
# gunicorn reads so much of a body that nobody wanted, and keeps the connection; after more it closes it
# (gunicorn/http/parser.py, finish_body; 27).
PASSED_OVER = 64 * 1024
# In a request's WSGI environment: its body was read.
READ = "endpoint.body_read"


def read_json(request: Request, max_bytes: int, deadlines: ReadTimeouts, *, also: Collection[str] = ()) -> bytes:
    """The body's bytes, of a request that says it is JSON.

    A missing Content-Type is refused too: SageMaker always sends one (boto3's `ContentType`).

    :param also: content types that are taken besides JSON's.
    :raises UnsupportedMediaType, BodyTooLarge, InvalidBody, RequestTimedOut: as named.
    """
    kind = request.mimetype
    if kind != "application/json" and not kind.endswith("+json") and kind not in also:
        raise UnsupportedMediaType(request.headers.get("Content-Type", ""))
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise InvalidBody(f"its charset is '{charset[:40]}'")
    return read_body(request, max_bytes, deadlines)


def read_body(request: Request, max_bytes: int, deadlines: ReadTimeouts) -> bytes:
    """The body's bytes, of whatever kind.

    :raises BodyTooLarge, InvalidBody, RequestTimedOut: as named.
    """
    length = request.content_length
    connection: socket.socket | None = request.environ.get("gunicorn.socket")
    reading = None if connection is None else deadlines.begin(connection, BODY_SECONDS)
    stream = request.environ["wsgi.input"]
    try:
        if length is not None and length > max_bytes:
            raise BodyTooLarge(max_bytes)
        body: bytes = stream.read(max_bytes + 1 if length is None else length)
    except TimeoutError:
        raise RequestTimedOut(BODY_SECONDS) from None
    except Exception as error:
        if reading is not None and reading.late:
            raise RequestTimedOut(BODY_SECONDS) from None
        if isinstance(error, ParseException | OSError):  # after which gunicorn closes the connection
            raise InvalidBody("its chunks are broken, or it ended within one") from None
        raise
    finally:
        if reading is not None:
            deadlines.end(reading)
    if reading is not None and reading.late:
        raise RequestTimedOut(BODY_SECONDS)
    if len(body) > max_bytes:
        raise BodyTooLarge(max_bytes)
    request.environ[READ] = True
    if length is not None and len(body) < length:
        raise InvalidBody(f"it ended after {len(body)} of {length} bytes")
    return body


def is_left(request: Request) -> bool:
    """So much of its body is unread that the connection cannot be kept: its reply says so, and what still comes is
    thrown away after it (`container.connection.lingering_close`)."""
    if READ in request.environ:
        return False
    length = request.content_length
    return "Transfer-Encoding" in request.headers if length is None else length > PASSED_OVER
