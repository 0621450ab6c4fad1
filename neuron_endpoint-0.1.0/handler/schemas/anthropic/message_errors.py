"""Errors as the Messages API writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.errors import EndpointError

# Anthropic's API reference, "Errors". Every other 4xx is an invalid_request_error, every other 5xx an api_error.
TYPES: Final[Mapping[int, str]] = {
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_document(error: EndpointError) -> dict[str, Any]:
    """The body of an error reply, and the data of an error event. `param` and `code` are as in OpenAI's errors."""
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {**error.document()["error"], "type": kind}}
