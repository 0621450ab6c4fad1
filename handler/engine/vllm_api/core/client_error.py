"""vLLM's own exception for a wrong request: 0.29.0 answers any other one with a 500, a ValueError too."""

from __future__ import annotations

try:
    from vllm.exceptions import VLLMValidationError  # 0.16.0
except ImportError:
    VLLMValidationError = None


def client_error(message: str, parameter: str | None = None) -> Exception:
    """The exception to raise inside vLLM. It is a ValueError before 0.29.0.

    :param parameter: the wrong field.
    """
    return VLLMValidationError(message, parameter=parameter) if VLLMValidationError else ValueError(message)
