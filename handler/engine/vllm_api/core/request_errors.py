"""How vLLM says that a request is wrong.

A plain ValueError on 0.13.0; on 0.16.0 and 0.24.0 some are a `VLLMValidationError`, a ValueError that names the
parameter and repeats it at the end of its text; on 0.32.0 that is a `VLLMClientError` and no ValueError any more.
"""

from __future__ import annotations

from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField

try:
    from vllm.exceptions import VLLMClientError  # 0.32.0
except ImportError:
    VLLMClientError = ValueError

REFUSALS: tuple[type[Exception], ...] = (ValueError, VLLMClientError)


def as_invalid_field(error: Exception, otherwise: str) -> InvalidField:
    """:param otherwise: what to name where vLLM names none of the request's fields."""
    message = reason(error)
    named = getattr(error, "parameter", None) or message.split(" ", 1)[0].strip("`'\"")
    return InvalidField(named if named in Sampling.__slots__ else otherwise, message)


def reason(error: Exception) -> str:
    """Its text, without the parameter and the value that later versions append."""
    return (str(error.args[0]) if error.args else str(error)).rstrip(".")
