"""Reads a request's body within the limits of media type, size and time. Each limit has its own error."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import IO

from flask import Request
from gunicorn.http.errors import ParseException

from container.connection.read_timeouts import ReadTimeouts
from container.requests.body_budget import KEY as BODY_BYTES
from container.requests.body_budget import BodyBytes
from handler.errors import BodiesTooLarge, BodyTooLarge, InvalidBody, RequestTimedOut, UnsupportedMediaType

BODY_SECONDS = 60.0
# Bytes that are read at a time of a body of unknown length.
PIECE = 64 * 1024
# gunicorn reads and discards this much of an unread body and keeps the connection. After a longer one it closes the
# connection (gunicorn/http/parser.py, finish_body; 27).
GUNICORN_DISCARDS = 64 * 1024
# Key in the WSGI environment: the body was read.
READ = "endpoint.body_read"


def read_json(
    request: Request,
    max_bytes: int,
    read_timeouts: ReadTimeouts,
    *,
    accepted: Collection[str] = (),
    media_type: str | None = None,
) -> bytes:
    """Reads the body of a request that declares JSON.

    A missing Content-Type is an error as well.

    :param accepted: media types that are accepted besides JSON's.
    :param media_type: the body's, if the request need not declare it.
    :raises UnsupportedMediaType, BodyTooLarge, InvalidBody, RequestTimedOut: the body is beyond a limit, or broken.
    """
    media_type = request.mimetype if media_type is None else media_type
    if media_type != "application/json" and not media_type.endswith("+json") and media_type not in accepted:
        raise UnsupportedMediaType(request.headers.get("Content-Type", ""))
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise InvalidBody(f"its charset is '{charset[:40]}'")
    return read_body(request, max_bytes, read_timeouts)


def read_body(request: Request, max_bytes: int, read_timeouts: ReadTimeouts) -> bytes:
    """Reads a body of any media type.

    :raises BodyTooLarge, BodiesTooLarge, InvalidBody, RequestTimedOut: the body is beyond a limit, or broken.
    """
    length = request.content_length
    taken: BodyBytes = request.environ[BODY_BYTES]
    connection: socket.socket | None = request.environ.get("gunicorn.socket")
    reading = None if connection is None else read_timeouts.begin(connection, BODY_SECONDS)
    stream = request.environ["wsgi.input"]
    try:
        if length is not None and length > max_bytes:
            raise BodyTooLarge(max_bytes)
        if length is not None:
            taken.take(length)
        body: bytes = stream.read(length) if length is not None else _read_chunks(stream, max_bytes, taken)
    except TimeoutError:
        raise RequestTimedOut(BODY_SECONDS) from None
    except BodiesTooLarge:
        raise
    except Exception as error:
        if reading is not None and reading.late:
            raise RequestTimedOut(BODY_SECONDS) from None
        if isinstance(error, ParseException | OSError):  # gunicorn then closes the connection
            raise InvalidBody("its chunks are broken, or it ended within one") from None
        raise
    finally:
        if reading is not None:
            read_timeouts.end(reading)
    if reading is not None and reading.late:
        raise RequestTimedOut(BODY_SECONDS)
    if len(body) > max_bytes:
        raise BodyTooLarge(max_bytes)
    request.environ[READ] = True
    if length is not None and len(body) < length:
        raise InvalidBody(f"it ended after {len(body)} of {length} bytes")
    return body


def _read_chunks(stream: IO[bytes], max_bytes: int, taken: BodyBytes) -> bytes:
    """Reads a body of unknown length, up to one byte more than is allowed."""
    body = bytearray()
    while piece := stream.read(min(PIECE, max_bytes + 1 - len(body))):
        taken.take(len(piece))
        body += piece
    return bytes(body)


def has_unread_body(request: Request) -> bool:
    """Whether so much of the body is unread that the connection cannot be kept.

    The reply then closes the connection, and the rest is discarded (`container.connection.lingering_close`).
    """
    if READ in request.environ:
        return False
    length = request.content_length
    return "Transfer-Encoding" in request.headers if length is None else length > GUNICORN_DISCARDS
