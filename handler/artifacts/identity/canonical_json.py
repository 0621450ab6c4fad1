"""One way of writing each JSON value, so that equal settings have equal digests however they were spelled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from blake3 import blake3

from handler.json_value import Json


def canonical(value: object) -> bytes:
    """Sorted keys, no blanks, UTF-8, and one spelling of a number: `1.0` is `1`, `-0.0` is `0`; true is not `1`.

    :raises ValueError: NaN, an infinity, or text that is no Unicode. :raises TypeError: something that JSON has not.
    """
    return json.dumps(
        normal(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(value: object) -> str:
    """blake3 of the canonical form, hex."""
    return blake3(canonical(value)).hexdigest()


def normal(value: object) -> Json:
    """The value with numbers in their one spelling and tuples as lists."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no JSON number")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        return {key: normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")
