"""The base classes of the error tree."""

from __future__ import annotations

import re
from typing import ClassVar, Final

# OpenAI's error type, where the status decides it.
TYPES = {404: "not_found_error", 429: "rate_limit_error", 503: "service_unavailable_error", 504: "timeout_error"}
# A model's file names and a client's texts occur in messages, which logs and terminals show: they may not end a line,
# steer the terminal or turn the text around.
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    """The text with a space for each control character."""
    return CONTROL.sub(" ", text)


class EndpointError(Exception):
    """Root of the tree. A class with a status in TYPES has the error type from there.

    :param message: one or two sentences for the client: what is wrong, and what fixes it. One line: a control
        character becomes a space.
    :param param: the request field or the setting at fault, if there is one.
    :cvar ends_lines: the engine has gone, so a body's other lines fail with it, and the client sends all again.
    :ivar of_message: the body at fault is one of Anthropic's API, whose errors have a form of their own.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    ends_lines: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.kind = TYPES.get(cls.status, cls.kind)

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.param = param
        self.of_message = False

    def document(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error object. It is the body of an error reply, and the last event of a stream that failed."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class ClientError(EndpointError):
    """An error that the client can fix: status 4xx."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_request"


class ServerError(EndpointError):
    """An error that the client cannot fix: status 5xx. `retry_after` is in seconds."""

    status = 500
    retry_after: ClassVar[int | None] = None
