"""Maps the error tree to replies with the error object of the path's API. No reply contains a traceback."""

from __future__ import annotations

import logging

from handler import errors
from handler.schemas.anthropic.message_fields import MessagesRoute
from handler.schemas.anthropic.message_reply import error_body

logger = logging.getLogger(__name__)


def error_reply(
    error: errors.EndpointError, path: str = "", *, of_message: bool = False
) -> tuple[int, list[tuple[str, str]], bytes]:
    """The status, the headers and the body of the reply for an error.

    :param path: of the request. Paths of the Messages API have its errors.
    :param of_message: the body is one of the Messages API, whatever its path.
    """
    headers = [("Content-Type", "application/json")]
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    if isinstance(error, errors.MethodNotAllowed):
        headers.append(("Allow", ", ".join(error.allowed)))
    of_message = of_message or path.rstrip("/") in list(MessagesRoute)
    return error.status, headers, error_body(error, of_message=of_message)


def unexpected(error: Exception) -> errors.ServerError:
    """Logs an unexpected error with its traceback. Returns the error that the client gets, without details."""
    logger.error("An unexpected error", exc_info=error)
    return errors.ServerError("An unexpected error occurred. The container's log has the details.")
