"""Converts a text or a JSON value to a typed value. The functions are pure and raise only `BadValue`.

In an environment or a properties file every value is a text; in a document values have JSON's types.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from handler.config.problems import BadValue
from handler.json_value import Json

Item = TypeVar("Item")

TRUE, FALSE = ("true", "1"), ("false", "0")
# Docker's env files and an endpoint's environment keep quotes as part of the value.
QUOTES, IN_QUOTES = "\"'", "has quotes around it, which are part of the value here"
MAX_DEPTH = 32
KEY_FIX = "Give the ARN of a secret or of a KMS key, file:///path or env:NAME"
# vLLM's own suffixes (vllm/engine/arg_utils.py, human_readable_int): small letters are decimal, capitals binary.
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def shown(value: object) -> str:
    """A value as error messages show it: short, and on one line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def to_bool(value: Json) -> bool:
    """`true`, `false`, `1` or `0`, in any case."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if text in TRUE or text in FALSE:
        return text in TRUE
    raise BadValue(f"{shown(value)} is neither true nor false", "Give true or false")


def to_int(value: Json) -> int:
    """A whole number. `8k` and `8K` are read as vLLM reads them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?\d{1,18})", value.strip(), re.ASCII)
        if match:
            return int(match[1])
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([kmgtKMGT])", value.strip(), re.ASCII)
        if match and (match[2].islower() or "." not in match[1]):
            return int(float(match[1]) * SUFFIXES[match[2]])
    raise BadValue(f"{shown(value)} is not a whole number", "Give a whole number")


def to_float(value: Json) -> float:
    """A finite number. As in `to_int`, digits are ASCII, and no underscore is between them."""
    number: Json = value
    if isinstance(value, str):
        try:
            number = float(value) if value.strip().isascii() and "_" not in value else None
        except ValueError:
            number = None
    if isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number):
        return float(number)
    raise BadValue(f"{shown(value)} is not a number", "Give a number")


def to_str(value: Json) -> str:
    if isinstance(value, str) and value.strip():
        text = value.strip()
        if len(text) > 1 and text[0] == text[-1] and text[0] in QUOTES:
            raise BadValue(f"{shown(text)} {IN_QUOTES}", "Remove them")
        return text
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        raise BadValue("it is empty", "Give a value, or remove it")
    raise BadValue(f"{shown(value)} is not a text", "Put it in quotes")


def to_list(value: Json, item: Callable[[Json], Item]) -> tuple[Item, ...]:
    """A list, the JSON text of one, or items separated by commas."""
    if isinstance(value, str):
        text = value.strip()
        value = parse_json(text) if text.startswith("[") else [part.strip() for part in text.split(",") if part.strip()]
    if not isinstance(value, list):
        value = [value]
    if not value:
        raise BadValue("it is an empty list", "Remove it, or name at least one item")
    return tuple(item(entry) for entry in value)


def to_mapping(value: Json) -> dict[str, Json]:
    """An object, or the JSON text of one."""
    if isinstance(value, str):
        value = parse_json(value)
    if not isinstance(value, dict):
        raise BadValue(f"{shown(value)} is not an object", 'Give a JSON object: {"key": value}')
    return value


def to_port_range(text: str) -> tuple[int, int]:
    """The first and the last port of SAGEMAKER_SAFE_PORT_RANGE.

    :raises BadValue: the text is not a range of ports.
    """
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip(), re.ASCII)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise BadValue(
            f"'{text[:40]}' is not a range of ports", "Write the first and the last port, as SageMaker does: 8100-8199"
        )
    return low, high


class KeyPlace(StrEnum):
    """Where the signing key is. The value begins the setting, or is the service in its ARN."""

    KMS = "kms"
    SECRET = "secretsmanager"
    FILE = "file:///"
    VARIABLE = "env:"


def to_key_place(text: str) -> KeyPlace:
    """Where the signing key of a setting is.

    :raises BadValue: it names no place that has one. It does not quote the text, which may be the key itself.
    """
    service = text.split(":")[2] if text.startswith("arn:") and text.count(":") >= 5 else ""
    for place in KeyPlace:
        if place == service or (place in (KeyPlace.FILE, KeyPlace.VARIABLE) and text.startswith(place)):
            return place
    raise BadValue("does not name a key", KEY_FIX)


def parse_json(text: str) -> Json:
    """Parses JSON as RFC 8259 defines it: no NaN, no duplicate key, no number beyond 64 bits, bounded nesting."""
    try:
        value: Json = json.loads(text, parse_constant=_no_constant, object_pairs_hook=unique)
    except BadValue:
        raise
    except json.JSONDecodeError as error:
        problem = f"it is not JSON ({error.msg}, line {error.lineno}, column {error.colno})"
        raise BadValue(problem, "Fix the JSON") from None
    except (ValueError, RecursionError):
        raise BadValue("it is JSON with a number that is too long, or nested too deep", "Fix the JSON") from None
    return plain(value)


def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object without duplicate keys."""
    members: dict[str, Json] = {}
    for key, value in pairs:
        if key in members:
            raise BadValue(f"the key {shown(key)} is given twice", "Keep one of the two")
        members[key] = value
    return members


def plain(value: object, depth: int = 0) -> Json:
    """The value, if JSON, YAML and an environment can all represent it.

    :raises BadValue: they cannot.
    """
    if depth > MAX_DEPTH:
        raise BadValue(f"it is nested deeper than {MAX_DEPTH} levels", "Flatten it")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        if value.bit_length() > 63:
            raise BadValue("it holds a number of more than 64 bits", "Give a smaller number")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadValue("it holds a number that is infinite or not a number", "Give a finite number")
        return value
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadValue(f"the key {shown(key)} is not a text", "Put the key in quotes")
        return {clean(key): plain(item, depth + 1) for key, item in value.items()}
    raise BadValue(f"it holds a {type(value).__name__}", "Put it in quotes to make it a text")


def clean(text: str) -> str:
    """The text, if it can be written as UTF-8 and passed to another process.

    :raises BadValue: it cannot.
    """
    if "\0" in text:
        raise BadValue("it holds a NUL character", "Remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue("it is not UTF-8", "Write it in UTF-8") from None
    return text


def _no_constant(name: str) -> Json:
    raise BadValue(f"{name} is not JSON", "Give a finite number")
