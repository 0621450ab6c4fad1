"""Answers bytes that gunicorn's parser rejects: an error object that repeats none of them.

gunicorn itself answers with an HTML page that repeats the bytes, and with 501 or 500 for some of them
(gunicorn/workers/base.py, handle_error; 27).
"""

from __future__ import annotations

from http import HTTPStatus

from gunicorn.http import errors as http

from container.requests.error_responses import unexpected
from handler.errors import EndpointError, InvalidRequest
from handler.schemas.reply import encode


class MissingHost(http.ParseException):  # type: ignore[misc]  # gunicorn is untyped
    """A request of HTTP/1.1 without a Host header. A server must answer it with 400 (RFC 9112, section 3.2)."""


# The first class that matches decides. All other parse errors of gunicorn are 400.
STATUSES: tuple[tuple[type[BaseException], int, str], ...] = (
    (http.LimitRequestLine, 414, "its first line is too long"),
    (http.LimitRequestHeaders, 431, "its headers are too long, or too many"),
    (http.ExpectationFailed, 417, "'Expect' may be '100-continue' only"),
    (http.UnsupportedTransferCoding, 400, "'Transfer-Encoding' may be 'chunked' only"),
    (http.InvalidHTTPVersion, 400, "its version is not HTTP/1.0 or HTTP/1.1"),
    (http.InvalidRequestLine, 400, "its first line is not valid HTTP"),
    (http.InvalidRequestMethod, 400, "its method is not an HTTP method"),
    (MissingHost, 400, "it has no 'Host' header, which HTTP/1.1 requires"),
    (http.InvalidHeader, 400, "a header is not valid HTTP, or occurs twice"),
    (http.InvalidHeaderName, 400, "the name of a header is not valid HTTP"),
)
# An invalid header of a reply: not the client's fault.
SERVER_ERRORS = (http.InvalidResponseHeader, http.InvalidResponseHeaderName)


def error_of(raised: BaseException) -> tuple[int, EndpointError]:
    """The status and the error for an exception of gunicorn."""
    if isinstance(raised, SERVER_ERRORS):
        return 500, unexpected(raised)
    for kind, status, problem in STATUSES:
        if isinstance(raised, kind):
            return status, InvalidRequest(problem)
    if isinstance(raised, http.ParseException):
        return 400, InvalidRequest("it is not HTTP/1.1")
    return 500, unexpected(raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__))


def error_reply(raised: BaseException) -> bytes:
    """The whole reply. The connection is closed after it: the begin of the next request is unknown."""
    return closing_reply(*error_of(raised))


def closing_reply(status: int, error: EndpointError) -> bytes:
    """The bytes of an error reply after which the connection is closed."""
    body = encode(error.document())
    retry_after = getattr(error, "retry_after", None)
    retry = "" if retry_after is None else f"Retry-After: {retry_after}\r\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{retry}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
