"""The trace that a request belongs to: W3C's headers, or the same in SageMaker's custom attributes. Pure.

SageMaker passes no headers of the client on but its own; a client of InvokeEndpoint has `CustomAttributes` for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

# AWS X-Ray's header, whose parts the custom attributes have between semicolons too ("Tracing header", X-Ray's guide).
XRAY: Final = "x-amzn-trace-id"
ROOT: Final = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
SPAN: Final = re.compile(r"[0-9a-f]{16}")
LONGEST: Final = 512


def carrier(environ: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """`traceparent`, and `tracestate` if there is one. Empty: the request begins a trace.

    :param environ: WSGI's, with the headers.
    :param given: the custom attributes.
    """
    if environ.get("HTTP_TRACEPARENT"):
        found = {name: str(environ.get(f"HTTP_{name.upper()}", "")) for name in ("traceparent", "tracestate")}
    elif given.get("traceparent"):
        found = {name: given.get(name, "") for name in ("traceparent", "tracestate")}
    else:
        header = str(environ.get("HTTP_X_AMZN_TRACE_ID", ""))
        parts = dict(part.strip().partition("=")[::2] for part in header.split(";"))
        if not header and XRAY in given:
            parts = {"Root": given[XRAY].removeprefix("Root="), "Parent": given.get("parent", "")}
            parts["Sampled"] = given.get("sampled", "")
        found = {"traceparent": xray(parts)}
    return {name: value for name, value in found.items() if value and len(value) <= LONGEST}


def xray(parts: Mapping[str, str]) -> str:
    """W3C's form of X-Ray's parts; empty where they name no span."""
    root, parent = ROOT.fullmatch(parts.get("Root", "").lower()), parts.get("Parent", "").lower()
    if root is None or not SPAN.fullmatch(parent):
        return ""
    return f"00-{root[1]}{root[2]}-{parent}-{'00' if parts.get('Sampled') == '0' else '01'}"
