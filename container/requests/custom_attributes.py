"""SageMaker's custom attributes: a header of `key=value` pairs between semicolons, from the client to the container."""

from __future__ import annotations

import re

HEADER = "X-Amzn-SageMaker-Custom-Attributes"
ENVIRON = "HTTP_X_AMZN_SAGEMAKER_CUSTOM_ATTRIBUTES"
# What SageMaker lets through of a reply's.
RETURNED = re.compile(r"[\x20-\x7e]{1,1024}", re.ASCII)


def returned(given: str | None) -> str | None:
    """A reply's header, where its view gives none: the request's own."""
    return given if given and RETURNED.fullmatch(given) else None


def parse(header: str | None) -> dict[str, str]:
    """The pairs, keys in lower case. What has no `=` is a key with an empty value; of two the last counts.

    SageMaker passes up to 1,024 ASCII characters on as they are, whatever they are: nothing here is an error.
    """
    pairs: dict[str, str] = {}
    for item in (header or "").split(";"):
        key, _, value = item.partition("=")
        if key.strip():
            pairs[key.strip().lower()] = value.strip().strip('"')
    return pairs
