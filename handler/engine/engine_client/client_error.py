"""vLLM's exceptions for a wrong request: which they are, how to raise one inside vLLM, and what the client gets for it.

Since 0.29.0 vLLM answers any other exception with a 500, a ValueError too. Tested on 0.9.1 to 0.32.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField

try:
    import vllm.exceptions as own
except ImportError:  # 0.9.1, 0.11.0
    own = None

VALIDATION_ERROR: Any = getattr(own, "VLLMValidationError", None)
# Since 0.29.0 they have a class above them, which is no ValueError.
CLIENT_ERROR: type[Exception] = getattr(own, "VLLMClientError", VALIDATION_ERROR or ValueError)
# vLLM's exceptions for a wrong request: a ValueError, and since 0.29.0 a `VLLMClientError`, which is none. Since 0.16.0
# some name the parameter and repeat it at the end of their text.
REFUSALS: tuple[type[Exception], ...] = (ValueError, CLIENT_ERROR)

# The finish reason of a request that the core could not finish.
ERROR = "error"
PROBLEM = (
    "no token is left that the grammar allows: leave out allowed_token_ids, bad_words, logit_bias and min_tokens, "
    "or change the grammar"
)


def rejected(finish_reason: str | None, token_ids: Sequence[int]) -> bool:
    """Whether a request with a grammar has ended because the grammar rejected its last token.

    A grammar and other fields that forbid tokens may leave none that both allow. vLLM then samples any token. Since
    0.24.0 the scheduler ends such a request with "error", together with that token (v1/core/sched/scheduler.py). 0.16.0
    goes on without the grammar. What else ends with "error" has no token yet, and is not the client's: a key-value
    cache that has not arrived, and since 0.29.0 a grammar that the core could not compile.
    """
    return finish_reason == ERROR and len(token_ids) > 0


def client_error(message: str, parameter: str | None = None) -> Exception:
    """The exception to raise inside vLLM. It is a ValueError before 0.29.0.

    :param parameter: the wrong field.
    """
    refusal: Exception = VALIDATION_ERROR(message, parameter=parameter) if VALIDATION_ERROR else ValueError(message)
    return refusal


def as_invalid_field(error: Exception, otherwise: str, names: Mapping[str, str] | None = None) -> InvalidField:
    """The error for the client.

    :param otherwise: the field to name if vLLM names none of the request's fields.
    :param names: as in `Generation`.
    """
    message = reason(error)
    named = getattr(error, "parameter", None) or message.split(" ", 1)[0].strip("`'\":")
    field = (names or {}).get(named, named if named in Sampling.__slots__ else otherwise)
    return InvalidField(field, message.removeprefix(f"{named}: "))


def reason(error: Exception) -> str:
    """The text of vLLM's error, without the parameter and the value that later versions append."""
    return (str(error.args[0]) if error.args else str(error)).rstrip(".")
