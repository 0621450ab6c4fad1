"""SageMaker's custom attributes: a header with `key=value` pairs, separated by semicolons, that clients may send."""

from __future__ import annotations

import re

HEADER = "X-Amzn-SageMaker-Custom-Attributes"
ENVIRON = "HTTP_X_AMZN_SAGEMAKER_CUSTOM_ATTRIBUTES"
# What SageMaker accepts in a reply's header.
RETURNED = re.compile(r"[\x20-\x7e]{1,1024}", re.ASCII)


def returned(header: str | None) -> str | None:
    """The header of a reply whose view sets none: the request's own, if SageMaker accepts it."""
    return header if header and RETURNED.fullmatch(header) else None


def parse(header: str | None) -> dict[str, str]:
    """The pairs, with keys in lower case. An item without `=` has an empty value. Of equal keys the last counts.

    SageMaker passes on any text of up to 1,024 ASCII characters, so nothing here is an error.
    """
    pairs: dict[str, str] = {}
    for item in (header or "").split(";"):
        key, _, value = item.partition("=")
        if key.strip():
            pairs[key.strip().lower()] = value.strip().strip('"')
    return pairs
