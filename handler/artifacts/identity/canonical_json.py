"""Canonical JSON: equal settings have equal digests, however they were written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from blake3 import blake3

from handler.json_value import Json


def canonical(value: object) -> bytes:
    """Encodes a value with sorted keys, no blanks, UTF-8 and one form for each number.

    `1.0` becomes `1` and `-0.0` becomes `0`; true does not become `1`. What JSON has no number for becomes text: the
    config.json of Mamba hybrids has `"time_step_limit": [0.0, Infinity]`.

    :raises ValueError: text that is not valid Unicode.
    :raises TypeError: a type that JSON does not have.
    """
    return json.dumps(
        normal(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(value: object) -> str:
    """Returns the BLAKE3 digest of the canonical form, in hex."""
    return blake3(canonical(value)).hexdigest()


def normal(value: object) -> Json:
    """Returns the value with numbers in their canonical form and tuples as lists."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        return {key: normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    raise TypeError(f"{type(value).__name__} is not a JSON type")
