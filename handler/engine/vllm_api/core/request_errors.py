"""Translates vLLM's exceptions for a wrong request.

On 0.13.0 they are a ValueError. On 0.16.0 and 0.24.0 some are a `VLLMValidationError`, a ValueError that names the
parameter and repeats it at the end of its text. On 0.32.0 that is a `VLLMClientError`, which is not a ValueError.
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
    """The error for the client.

    :param otherwise: the field to name if vLLM names none of the request's fields.
    """
    message = reason(error)
    named = getattr(error, "parameter", None) or message.split(" ", 1)[0].strip("`'\"")
    return InvalidField(named if named in Sampling.__slots__ else otherwise, message)


def reason(error: Exception) -> str:
    """The text of vLLM's error, without the parameter and the value that later versions append."""
    return (str(error.args[0]) if error.args else str(error)).rstrip(".")
