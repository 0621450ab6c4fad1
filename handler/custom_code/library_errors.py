"""The errors of `sagemaker-inference` in our tree. The library is imported where hooks run, and only there."""

from __future__ import annotations

import sys

from handler.custom_code.code_errors import CustomCodeRefused, UnsupportedFormat
from handler.errors import EndpointError


def translated(name: str, error: Exception) -> EndpointError | None:
    """None for an error that is not the library's."""
    if "sagemaker_inference.errors" not in sys.modules:
        return None
    from sagemaker_inference import errors

    if isinstance(error, errors.BaseInferenceToolkitError):
        return CustomCodeRefused(int(error.status_code), str(error.message))
    if isinstance(error, errors.UnsupportedFormatError):
        return UnsupportedFormat(str(error), accept=name == "output_fn")
    return None
