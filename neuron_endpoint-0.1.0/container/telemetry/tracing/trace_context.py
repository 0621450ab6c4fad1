"""Reads a request's trace context from W3C's headers, X-Ray's header or SageMaker's custom attributes. Pure.

SageMaker passes on only its own headers, so a client of InvokeEndpoint sends the context in `CustomAttributes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

# AWS X-Ray's header. Its parts are separated by semicolons, as custom attributes are ("Tracing header", X-Ray's guide).
XRAY: Final = "x-amzn-trace-id"
ROOT: Final = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
SPAN: Final = re.compile(r"[0-9a-f]{16}")
MAX_LENGTH: Final = 512


def carrier(environ: Mapping[str, Any], attributes: Mapping[str, str]) -> dict[str, str]:
    """Headers `traceparent`, and `tracestate` if there is one. Empty: the request begins a new trace.

    :param environ: the WSGI environment.
    :param attributes: the custom attributes.
    """
    if environ.get("HTTP_TRACEPARENT"):
        found = {name: str(environ.get(f"HTTP_{name.upper()}", "")) for name in ("traceparent", "tracestate")}
    elif attributes.get("traceparent"):
        found = {name: attributes.get(name, "") for name in ("traceparent", "tracestate")}
    else:
        header = str(environ.get("HTTP_X_AMZN_TRACE_ID", ""))
        parts = dict(part.strip().partition("=")[::2] for part in header.split(";"))
        if not header and XRAY in attributes:
            parts = {"Root": attributes[XRAY].removeprefix("Root="), "Parent": attributes.get("parent", "")}
            parts["Sampled"] = attributes.get("sampled", "")
        found = {"traceparent": traceparent_of_xray(parts)}
    return {name: value for name, value in found.items() if value and len(value) <= MAX_LENGTH}


def traceparent_of_xray(parts: Mapping[str, str]) -> str:
    """A `traceparent` from the parts of X-Ray's header; empty if they name no span."""
    root, parent = ROOT.fullmatch(parts.get("Root", "").lower()), parts.get("Parent", "").lower()
    if root is None or not SPAN.fullmatch(parent):
        return ""
    return f"00-{root[1]}{root[2]}-{parent}-{'00' if parts.get('Sampled') == '0' else '01'}"
