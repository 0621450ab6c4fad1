"""Errors in a request as a whole: its path, its method, its size, its timing."""

from __future__ import annotations

from handler.errors.base import ClientError


class InvalidRequest(ClientError):
    """The bytes that were sent are not an HTTP request."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The request cannot be read: {problem}.")


class LineTooLong(InvalidRequest):
    """The request's first line is too long."""

    status = 414

    def __init__(self) -> None:
        super().__init__("its first line is too long")


class HeadersTooLong(InvalidRequest):
    """The request's headers are too long, or too many."""

    status = 431

    def __init__(self) -> None:
        super().__init__("its headers are too long, or too many")


class UnmetExpectation(InvalidRequest):
    """The request expects something that is not in HTTP/1.1."""

    status = 417

    def __init__(self) -> None:
        super().__init__("'Expect' may be '100-continue' only")


class RouteNotFound(ClientError):
    """No route has this path."""

    status = 404
    code = "not_found"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(
            f"{method} {path[:200]} is not served here: use GET /ping, POST /invocations, "
            "POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /tokenize, /detokenize "
            "or GET /v1/models."
        )


class MethodNotAllowed(ClientError):
    """The path exists, but not with this method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        super().__init__(f"{path[:200]} accepts {' or '.join(allowed)}, not {method}.")


class ForeignOrigin(ClientError):
    """A web page of another origin sent the request."""

    status = 403
    code = "foreign_origin"

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"The request comes from a web page of {origin[:200]!r}, another origin than this endpoint's: "
            "send it from a program, or from the endpoint's own page."
        )


class ForeignHost(ClientError):
    """The page was asked for under a name that is not this machine's."""

    status = 403
    code = "foreign_host"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"The page is not served for the host {host[:200]!r}: open it by address, as localhost, or by the "
            "machine's own name."
        )


class UpgradeRequired(ClientError):
    """The path accepts only WebSocket connections."""

    status = 426
    code = "upgrade_required"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} accepts WebSocket connections only: request an upgrade, or use POST /invocations.")


class RequestTimedOut(ClientError):
    """The client did not send its body in time."""

    status = 408
    code = "request_timed_out"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The request body did not arrive within {seconds:g} s.")


class BodyTooLarge(ClientError):
    """The body is larger than SageMaker, or the endpoint's setting, allows."""

    status = 413
    code = "body_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The request body is larger than {limit_bytes:,} bytes: send a smaller one, or use an S3 input."
        )


class UnsupportedMediaType(ClientError):
    """The content type is not the route's, which is JSON for all but one."""

    status = 415
    code = "unsupported_media_type"

    def __init__(self, content_type: str, wanted: str = "application/json") -> None:
        self.content_type = content_type
        given = f"'{content_type[:100]}'" if content_type else "missing"
        super().__init__(f"Content-Type is {given}: send '{wanted}'.", param="Content-Type")


class TooManyRequests(ClientError):
    """The endpoint has as many requests as it accepts. `retry_after` is in seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, limit: int, retry_after: int = 1) -> None:
        self.limit, self.retry_after = limit, retry_after
        super().__init__(f"The endpoint already has {limit} requests, its limit: try again in {retry_after} s.")


class BodiesTooLarge(ClientError):
    """The bodies of all requests together have as many bytes as the endpoint holds. `retry_after` is in seconds."""

    status = 429
    code = "too_many_body_bytes"
    retry_after = 1

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The bodies of all requests may have {limit_bytes:,} bytes together (ENDPOINT_BODY_BUDGET); this one is "
            f"too much now: try again in {self.retry_after} s, or send a smaller body.",
            param="body",
        )
