"""Validates requests and renders replies by botocore's service model, which is generated from SageMaker's own.

boto3 checks types, required members and lower bounds before it sends. The service checks upper bounds, patterns and
enumerations. So a mistake in those shows only in the cloud, or here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from local_sagemaker.control.control_errors import SerializationException, ValidationException

TYPES: dict[str, type | tuple[type, ...]] = {
    **{"structure": dict, "map": dict, "list": list, "string": str, "boolean": bool},
    **{"integer": int, "long": int, "float": (int, float), "double": (int, float), "timestamp": (int, float)},
}
NUMBERS = ("integer", "long", "float", "double", "timestamp")
BEYOND_NUMBERS = 2**63
# As error messages name the types.
TYPE_NAMES = {"map": "structure", "timestamp": "number of seconds"}
SURROGATE = re.compile(r"[\ud800-\udfff]")
JAVA_CLASSES = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\d",
    r"\p{Z}": r"\s",
    r"[\p{Print}]": r"[\x20-\x7e]",
    r"\p{Print}": r"[\x20-\x7e]",
    r"\p{ASCII}": r"[\x00-\x7f]",
    r"\z": r"\Z",
    r"\uD800\uDC00-\uDBFF\uDFFF": r"\U00010000-\U0010FFFF",  # what a pair of surrogates stands for
}


def parse(shape: StructureShape | None, body: Any) -> dict[str, Any]:
    """Returns the validated parameters of a request. A member that is null counts as not given.

    :raises SerializationException: a value has another type than its member, or none that JSON can hold.
    :raises ValidationException: members are missing, unknown or break a constraint. The message lists all of them.
    """
    if not isinstance(body, dict):
        raise SerializationException("The request's body is not a JSON object.")
    if shape is None:
        return {}
    problems = list(_problems(shape, body, ""))
    if problems:
        count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} detected: "
        raise ValidationException(count + "; ".join(problems))
    given: dict[str, Any] = _without_nulls(body)
    return given


def render(shape: Shape, value: Any) -> Any:
    """Returns a reply's JSON: only the members of the shape. ``None`` is omitted.

    :raises KeyError: a required member is missing.
    """
    if isinstance(shape, StructureShape):
        rendered = {
            name: render(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None  # or it would be null on the wire
        }
        for name in shape.required_members:
            if name not in rendered:
                raise KeyError(f"{shape.name} lacks {name}")
        return rendered
    if isinstance(shape, ListShape):
        return [render(shape.member, item) for item in value]
    if isinstance(shape, MapShape):
        return {str(key): render(shape.value, item) for key, item in value.items()}
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _problems(shape: Shape, value: Any, at: str) -> Iterator[str]:
    _check_type(shape.type_name, value, at)
    if isinstance(shape, StructureShape):
        for name in shape.required_members:
            if value.get(name) is None:
                yield _problem(None, _below(at, name), "Member must not be null")
        for name, item in value.items():
            if name not in shape.members:
                yield f"Unknown member '{name}' at '{at or 'the request'}': {shape.name} has {', '.join(shape.members)}"
            elif item is not None:
                yield from _problems(shape.members[name], item, _below(at, name))
    elif isinstance(shape, ListShape):
        yield from _bounds(shape, len(value), value, at, "length")
        for number, item in enumerate(value, 1):
            yield from _problems(shape.member, item, f"{at}.{number}.member")
    elif isinstance(shape, MapShape):
        yield from _bounds(shape, len(value), value, at, "length")
        for key, item in value.items():
            yield from _problems(shape.key, key, f"{at}.key")
            yield from _problems(shape.value, item, f"{at}.{key}.member")
    else:
        yield from _scalar_problems(shape, value, at)


def _scalar_problems(shape: Shape, value: Any, at: str) -> Iterator[str]:
    kind = shape.type_name
    if kind == "string":
        yield from _bounds(shape, len(value), value, at, "length")
        if (enum := shape.metadata.get("enum")) and value not in enum:
            yield _problem(value, at, f"Member must satisfy enum value set: [{', '.join(enum)}]")
        if (pattern := shape.metadata.get("pattern")) and not matches(pattern, value):
            yield _problem(value, at, f"Member must satisfy regular expression pattern: {pattern}")
    elif kind in NUMBERS:
        yield from _bounds(shape, value, value, at, "value")


def _bounds(shape: Shape, size: float, value: Any, at: str, what: str) -> Iterator[str]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and size < low:
        yield _problem(value, at, f"Member must have {what} greater than or equal to {low}")
    if high is not None and size > high:
        yield _problem(value, at, f"Member must have {what} less than or equal to {high}")


def matches(pattern: str, value: str) -> bool:
    """Whether a value matches a pattern of the service model, which is written for Java."""
    return _compiled(pattern).fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for java, python in JAVA_CLASSES.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _check_type(kind: str, value: Any, at: str) -> None:
    fits = kind not in TYPES or isinstance(value, TYPES[kind])
    number_of_flag = isinstance(value, bool) and kind != "boolean"  # Python's bool is an int.
    if not fits or number_of_flag:
        name = TYPE_NAMES.get(kind, kind)
        raise SerializationException(f"{at or 'The request'} must be a {name}, not {type(value).__name__}.")
    if kind in NUMBERS and not abs(value) < BEYOND_NUMBERS:
        raise SerializationException(f"{at} must be a number of at most 64 bits.")
    if kind == "string" and SURROGATE.search(value):
        raise SerializationException(f"{at} has half of a character (a lone surrogate), which is no Unicode.")


def _below(at: str, name: str) -> str:
    lower = name[:1].lower() + name[1:]
    return f"{at}.{lower}" if at else lower


def _problem(value: Any, at: str, constraint: str) -> str:
    shown = "null" if value is None else str(value)
    shown = shown if len(shown) <= 100 else shown[:100] + "..."
    return f"Value '{shown}' at '{at}' failed to satisfy constraint: {constraint}"
