"""vLLM's own exception for a wrong request: 0.29.0 answers any other one with a 500, a ValueError too."""

from __future__ import annotations

from typing import Any

try:
    import vllm.exceptions as own
except ImportError:  # 0.9.1, 0.11.0
    own = None

VALIDATION_ERROR: Any = getattr(own, "VLLMValidationError", None)
# Since 0.29.0 they have a class above them, which is no ValueError.
CLIENT_ERROR: type[Exception] = getattr(own, "VLLMClientError", VALIDATION_ERROR or ValueError)


def client_error(message: str, parameter: str | None = None) -> Exception:
    """The exception to raise inside vLLM. It is a ValueError before 0.29.0.

    :param parameter: the wrong field.
    """
    found: Exception = VALIDATION_ERROR(message, parameter=parameter) if VALIDATION_ERROR else ValueError(message)
    return found
