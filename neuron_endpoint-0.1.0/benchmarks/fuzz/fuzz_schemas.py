"""JSON schemas for the fuzz: most can be compiled, some are odd, some are hostile."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from benchmarks.fuzz.fuzz_mutations import STRANGE, places
from benchmarks.fuzz.fuzz_regexes import hostile_regex, regex

NAMES = ("a", "b", "name", "city", "0", "é", "a b", 'q"', "", "$ref", "x" * 60)
FORMATS = ("date-time", "date", "email", "uuid", "ipv4", "uri", "hostname", "duration", "regex", "nonsense")
KEYWORDS = (
    "type", "enum", "const", "properties", "required", "items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "if",
    "then", "else", "$ref", "$defs", "$dynamicRef", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "contains",
    "minContains", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "dependentRequired", "unevaluatedProperties", "unevaluatedItems", "default", "title", "contentEncoding",
)  # fmt: skip


def schema(rng: random.Random, depth: int = 2) -> Any:
    """A schema that means something."""
    makers: tuple[Callable[[random.Random, int], Any], ...] = (_number, _string, _simple)
    if depth:
        makers += (_object, _object, _array, _combined)
    return rng.choice(makers)(rng, depth)


def _chosen(rng: random.Random, every: dict[str, Any], most: int) -> dict[str, Any]:
    return {name: every[name] for name in rng.sample(sorted(every), rng.randrange(most + 1))}


def _number(rng: random.Random, depth: int) -> Any:
    low = rng.randrange(-100, 100)
    every = {"minimum": low, "maximum": low + rng.randrange(200), "exclusiveMinimum": low - 1, "multipleOf": 3}
    return {"type": rng.choice(("integer", "number")), **_chosen(rng, every, 2)}


def _string(rng: random.Random, depth: int) -> Any:
    every = {"pattern": regex(rng, 1), "format": rng.choice(FORMATS), "minLength": 1, "maxLength": rng.randrange(1, 20)}
    return {"type": "string", **_chosen(rng, every, 2)}


def _simple(rng: random.Random, depth: int) -> Any:
    return rng.choice(
        (
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["yes", "no", 1, None, {"a": []}]},
            {"const": rng.choice(("x", 1.5, [1], {}, "é\n"))},
            {"type": ["string", "null"]},
            {},
            True,
            {"description": "anything"},
        )
    )


def _array(rng: random.Random, depth: int) -> Any:
    every = {
        "minItems": rng.randrange(3),
        "maxItems": rng.randrange(3, 9),
        "uniqueItems": True,
        "prefixItems": [schema(rng, 0), schema(rng, 0)],
        "contains": schema(rng, 0),
    }
    return {"type": "array", "items": rng.choice((schema(rng, depth - 1), False)), **_chosen(rng, every, 2)}


def _object(rng: random.Random, depth: int) -> Any:
    names = rng.sample(NAMES, rng.randrange(4))
    every = {
        "required": names[: rng.randrange(3)],
        "additionalProperties": rng.choice((False, False, schema(rng, 0))),
        "patternProperties": {rng.choice(("^a", "b$", regex(rng, 1))): schema(rng, 0)},
        "propertyNames": {"pattern": regex(rng, 0)},
        "minProperties": rng.randrange(3),
        "maxProperties": rng.randrange(1, 6),
        "dependentRequired": {"a": ["b"]},
    }
    return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names}, **_chosen(rng, every, 3)}


def _combined(rng: random.Random, depth: int) -> Any:
    parts = [schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    return rng.choice(
        (
            {"anyOf": parts},
            {"oneOf": parts},
            {"allOf": parts},
            {"not": parts[0]},
            {"if": parts[0], "then": parts[-1], "else": {"type": "null"}},
            {"$ref": "#/$defs/d", "$defs": {"d": parts[0]}},
            {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                "required": ["next"],
            },
        )
    )


def odd_schema(rng: random.Random) -> Any:
    """A schema with keywords that do not belong, or values that they do not have."""
    found = copy.deepcopy(schema(rng))
    if not isinstance(found, dict):
        found = {"anyOf": [found]}
    for _ in range(rng.choice((1, 1, 2, 3))):
        container, key = rng.choice(places(found, []) or [(found, "type")])
        if rng.random() < 0.5 and isinstance(container, dict):
            key = rng.choice(KEYWORDS)
        container[key] = copy.deepcopy(rng.choice((*STRANGE, schema(rng, 1), schema(rng, 1))))
    return found


def hostile_schema(rng: random.Random) -> Any:
    """One that is small and takes long, or much, or ends a library."""
    count = rng.choice((100, 10**4, 10**6, 10**9, 2**63, -1, 1.5))
    keyword = rng.choice(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"))
    of = {"Items": "array", "Length": "string", "Properties": "object"}[keyword[3:]]
    deep, wide = rng.choice((5, 20, 60)), rng.choice((20, 200, 1000))
    return rng.choice(
        (
            lambda: {"type": of, keyword: count, "items": schema(rng, 0)},
            lambda: {"type": of, keyword: count, "items": {"type": "integer", "multipleOf": 3}},
            lambda: _nested(deep, lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"]}),
            lambda: _nested(deep, lambda inner: {"type": "array", "items": inner, "maxItems": 3}),
            lambda: _nested(deep, lambda inner: {"anyOf": [inner, {"type": "null"}]}),
            lambda: _nested(deep, lambda inner: {"allOf": [inner]}),
            lambda: _nested(
                rng.choice((4, 7)), lambda inner: {"type": "object", "properties": {"a": inner, "b": inner}}
            ),
            lambda: {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(wide)}},
            lambda: {"enum": [f"value {number}" for number in range(wide)]},
            lambda: {"anyOf": [{"const": number} for number in range(wide)]},
            lambda: {
                "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)},
                "$ref": "#/$defs/d0",
            },
            lambda: {
                "$ref": rng.choice(
                    ("#", "#/$defs/none", "http://127.0.0.1:9/s", "#/properties/a", "", "file:///etc/passwd")
                )
            },
            lambda: {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            lambda: {"type": "string", "pattern": hostile_regex(rng)},
            lambda: {"type": "object", "patternProperties": {hostile_regex(rng): {"type": "string"}}},
            lambda: {"type": "object", "propertyNames": {"pattern": hostile_regex(rng)}},
            lambda: {"type": "integer", "minimum": -(10**18), "maximum": 10 ** rng.choice((18, 30))},
            lambda: {"type": "number", "exclusiveMinimum": rng.choice((True, 1e308, -1e-320, "a")), "maximum": 0},
            lambda: {"type": "integer", "minimum": 5, "maximum": 1},
        )
    )()


def deep_text(rng: random.Random) -> str:
    """A schema as a text, deeper than a body may be."""
    depth = rng.choice((100, 900, 3000))
    begin, end = rng.choice((('{"type":"object","properties":{"a":', "}}"), ('{"items":', "}"), ('{"anyOf":[', "]}")))
    return begin * depth + "{}" + end * depth


def _nested(depth: int, around: Callable[[Any], Any]) -> Any:
    found: Any = {"type": "integer"}
    for _ in range(depth):
        found = around(found)
    return found
