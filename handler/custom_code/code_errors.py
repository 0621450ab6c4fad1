"""The errors of custom code. A traceback is written to the log, never to a reply."""

from __future__ import annotations

from handler.errors import ClientError, EndpointError, ServerError

MAX_MESSAGE = 500


class Exited(Exception):
    """An async function of custom code called `sys.exit`, or raised KeyboardInterrupt: its cause.

    Either would end the event loop that it leaves, with everything else that runs there.
    """


class CustomCodeFailed(ServerError):
    """A hook raised an exception: 500, with the exception's type and message."""

    code = "custom_code_failed"

    def __init__(self, function: str, error: BaseException) -> None:
        self.function = function
        message = str(error).strip()[:MAX_MESSAGE]
        super().__init__(f"{function} raised {type(error).__name__}{': ' if message else ''}{message}")


class PingUnanswered(ServerError):
    """The model's own handler of /ping has not answered: 500."""

    code = "custom_code_failed"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the model's code for /ping has not answered in {seconds:.0f} s, and still runs")


class InvalidReply(ServerError):
    """Custom code gave its reply a status or a header that HTTP cannot carry."""

    code = "invalid_code_reply"

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"The code's reply has {what}: {fix}.")


class ReplyHeadersTooLong(ServerError):
    """The reply of a hook on an asynchronous endpoint has more bytes of headers than SageMaker takes."""

    code = "reply_headers_too_long"

    def __init__(self, size: int, most: int, longest: str) -> None:
        super().__init__(
            f"The code's reply has {size:,} bytes of headers. Of an asynchronous endpoint SageMaker takes {most:,}. "
            f"The longest is {longest[:80]}: send it in the body."
        )


class CustomCodeRefused(EndpointError):
    """A hook raised an error of `sagemaker-inference`, which has its own status."""

    code = "custom_code_refused"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message[:MAX_MESSAGE])
        self.status = status if 400 <= status <= 599 else 500  # type: ignore[misc]  # per instance
        if self.status < 500:
            self.kind = ClientError.kind  # type: ignore[misc]


class UnsupportedFormat(ClientError):
    """The UnsupportedFormatError of `sagemaker-inference`.

    Either `input_fn` cannot read the Content-Type, or `output_fn` cannot write any type in Accept.
    """

    code = "unsupported_media_type"

    def __init__(self, message: str, *, accept: bool) -> None:
        self.status = 406 if accept else 415  # type: ignore[misc]
        super().__init__(" ".join(message.split()), param="Accept" if accept else "Content-Type")


class NoEngine(ClientError):
    """The endpoint runs custom code without an engine."""

    status = 404
    code = "no_engine"

    def __init__(self) -> None:
        super().__init__(
            "This endpoint runs custom code without an engine (ENDPOINT_ENGINE=none): use POST /invocations."
        )
