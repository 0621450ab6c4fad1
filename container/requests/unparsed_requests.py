"""What is answered to bytes that gunicorn's parser does not take for a request: our error object, and nothing of them.

gunicorn answers with a page of HTML that repeats what was sent, and 501 or 500 to some of it
(gunicorn/workers/base.py, handle_error; 27).
"""

from __future__ import annotations

from http import HTTPStatus

from gunicorn.http import errors as http

from container.requests.error_responses import unexpected
from handler.errors import EndpointError, InvalidRequest
from handler.schemas.reply import encode

# The first that fits; the rest of gunicorn's parse errors are 400.
STATUSES: tuple[tuple[type[BaseException], int, str], ...] = (
    (http.LimitRequestLine, 414, "its first line is too long"),
    (http.LimitRequestHeaders, 431, "its headers are too long, or too many"),
    (http.ExpectationFailed, 417, "'Expect' may be '100-continue' only"),
    (http.UnsupportedTransferCoding, 400, "'Transfer-Encoding' may be 'chunked' only"),
    (http.InvalidHTTPVersion, 400, "its version is not HTTP/1.0 or HTTP/1.1"),
    (http.InvalidRequestLine, 400, "its first line is not HTTP's"),
    (http.InvalidRequestMethod, 400, "its method is none of HTTP's"),
    (http.InvalidHeader, 400, "a header is not HTTP's, or given twice"),
    (http.InvalidHeaderName, 400, "a header's name is not HTTP's"),
)
# A header of a reply: not the client's fault.
OURS = (http.InvalidResponseHeader, http.InvalidResponseHeaderName)


def error_of(raised: BaseException) -> tuple[int, EndpointError]:
    """Status and error for what gunicorn raised."""
    if isinstance(raised, OURS):
        return 500, unexpected(raised)
    for kind, status, problem in STATUSES:
        if isinstance(raised, kind):
            return status, InvalidRequest(problem)
    if isinstance(raised, http.ParseException):
        return 400, InvalidRequest("it is not HTTP/1.1")
    return 500, unexpected(raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__))


def refusal(raised: BaseException) -> bytes:
    """The whole reply, after which the connection is closed: where the next request would begin is not known."""
    status, error = error_of(raised)
    body = encode(error.document())
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
