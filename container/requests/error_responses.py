"""Maps the error tree to replies with the error object of the path's API. No reply contains a traceback."""

from __future__ import annotations

import logging

from handler import errors
from handler.schemas.anthropic.message_fields import MessagesRoute
from handler.schemas.anthropic.message_reply import error_document
from handler.schemas.reply import encode

logger = logging.getLogger(__name__)


def error_reply(error: errors.EndpointError, path: str = "") -> tuple[int, list[tuple[str, str]], bytes]:
    """The status, the headers and the body of the reply for an error.

    :param path: of the request. Paths of the Messages API have its errors, all others OpenAI's.
    """
    headers = [("Content-Type", "application/json")]
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers.append(("Retry-After", str(retry_after)))
    if isinstance(error, errors.MethodNotAllowed):
        headers.append(("Allow", ", ".join(error.allowed)))
    return error.status, headers, encode(error_document(error) if path in list(MessagesRoute) else error.document())


def unexpected(error: Exception) -> errors.ServerError:
    """Logs an unexpected error with its traceback. Returns the error that the client gets, without details."""
    logger.error("An unexpected error", exc_info=error)
    return errors.ServerError("An unexpected error occurred. The container's log has the details.")
