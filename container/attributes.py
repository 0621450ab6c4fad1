"""SageMaker's custom attributes: `key=value` pairs between semicolons or commas, at most 1,024 visible ASCII letters.

What a request brings goes back with its reply, and into the log, so that a client's trace id leads from one to the
other. Source: botocore's model of sagemaker-runtime (CustomAttributesHeader).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from handler.errors import InvalidField

HEADER = "X-Amzn-SageMaker-Custom-Attributes"
LONGEST = 1024
VISIBLE = re.compile(r"[\x20-\x7e]*", re.ASCII)


def parse(header: str | None) -> Mapping[str, str]:
    """The pairs, keys in lower case; what is no pair is passed over, for the header belongs to the client.

    :raises InvalidField: longer than SageMaker lets through, or not visible ASCII.
    """
    if not header:
        return {}
    if len(header) > LONGEST or not VISIBLE.fullmatch(header):
        raise InvalidField(HEADER, f"it must be at most {LONGEST} visible ASCII characters")
    pairs = (part.partition("=") for part in re.split(r"[;,]", header))
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals and key.strip()}
