"""What the owner's code can do wrong, in the tree of errors. The traceback is in the log, never in a reply."""

from __future__ import annotations

from handler.errors import ClientError, EndpointError, ServerError

MAX_MESSAGE = 500


class CustomCodeFailed(ServerError):
    """A hook raised: 500, with the exception's type and its message."""

    code = "custom_code_failed"

    def __init__(self, function: str, error: BaseException) -> None:
        self.function = function
        said = str(error).strip()[:MAX_MESSAGE]
        super().__init__(f"{function} raised {type(error).__name__}{': ' if said else ''}{said}")


class CustomCodeRefused(EndpointError):
    """A hook raised one of the library's errors, which say the status themselves."""

    code = "custom_code_refused"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message[:MAX_MESSAGE])
        self.status = status if 400 <= status <= 599 else 500  # type: ignore[misc]  # this one's own
        if self.status < 500:
            self.kind = ClientError.kind  # type: ignore[misc]


class UnsupportedFormat(ClientError):
    """The library's UnsupportedFormatError: a Content-Type that `input_fn` cannot read, or an Accept nobody writes."""

    code = "unsupported_media_type"

    def __init__(self, message: str, *, accept: bool) -> None:
        self.status = 406 if accept else 415  # type: ignore[misc]
        super().__init__(" ".join(message.split()), param="Accept" if accept else "Content-Type")


class NoEngine(ClientError):
    """The endpoint runs its owner's code without an engine."""

    status = 404
    kind = "not_found_error"
    code = "no_engine"

    def __init__(self) -> None:
        super().__init__("This endpoint has no engine of its own (ENDPOINT_ENGINE=none): use POST /invocations.")
