"""Structured output of every kind, in every field that a request may have it in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.fuzz.fuzz_bodies import Body
from benchmarks.fuzz.fuzz_mutations import STRANGE
from benchmarks.fuzz.fuzz_regexes import damaged, ebnf, hostile_ebnf, hostile_regex, regex
from benchmarks.fuzz.fuzz_schemas import deep_text, hostile_schema, odd_schema, schema

# How often a grammar is odd, and how often it is hostile. The rest can be compiled.
ODD, HOSTILE = 0.3, 0.12


def any_schema(rng: random.Random) -> Any:
    dice = rng.random()
    return hostile_schema(rng) if dice < HOSTILE else odd_schema(rng) if dice < HOSTILE + ODD else schema(rng)


def any_regex(rng: random.Random) -> str:
    dice = rng.random()
    return hostile_regex(rng) if dice < HOSTILE else regex(rng, odd=0.2) if dice < HOSTILE + ODD else regex(rng)


def any_ebnf(rng: random.Random) -> str:
    dice = rng.random()
    return hostile_ebnf(rng) if dice < HOSTILE else damaged(rng, ebnf(rng)) if dice < HOSTILE + ODD else ebnf(rng)


def choices(rng: random.Random) -> Any:
    if rng.random() < HOSTILE:
        return rng.choice(
            ([], [""], ["", "a"], [1, 2], "yes", ["a"] * 500, [f"c{n}" for n in range(3000)], ["\x00"], {"a": 1})
        )
    return rng.sample(("yes", "no", 'a"b', "a\\b", "é😀", "line\nline", "(x)", "[y]", "%", "a b"), rng.randrange(1, 5))


def tag_format(rng: random.Random, depth: int = 2) -> Any:
    """A format of xgrammar's structural tags."""

    def inner() -> Any:
        return tag_format(rng, depth - 1)

    leaves = (
        lambda: {"type": "const_string", "value": rng.choice(("a", "<x>", ""))},
        lambda: {"type": "json_schema", "json_schema": any_schema(rng)},
        lambda: {"type": "regex", "pattern": any_regex(rng)},
        lambda: {"type": "grammar", "grammar": any_ebnf(rng)},
        lambda: {"type": "any_text"},
        lambda: {"type": "qwen_xml_parameter", "json_schema": schema(rng)},
    )
    branches = (
        lambda: {"type": "sequence", "elements": [inner() for _ in range(rng.randrange(4))]},
        lambda: {"type": "or", "elements": [inner() for _ in range(rng.randrange(4))]},
        lambda: _tag(rng, inner()),
        lambda: {"type": "triggered_tags", "triggers": ["<f"], "tags": [_tag(rng, inner())], "at_least_one": True},
        lambda: {"type": "tags_with_separator", "tags": [_tag(rng, inner())], "separator": rng.choice((",", ""))},
        lambda: {"type": rng.choice(("no such format", "", 7, None))},
    )
    return rng.choice(branches if depth and rng.random() < 0.6 else leaves)()


def _tag(rng: random.Random, content: Any) -> Any:
    return {
        "type": "tag",
        "begin": rng.choice(("<f>", "<f>", "", "<")),
        "content": content,
        "end": rng.choice(("</f>", "")),
    }


def structural_tag(rng: random.Random) -> Any:
    """A structural tag, of the newer or the older form."""
    if rng.random() < 0.6:
        return {"type": "structural_tag", "format": tag_format(rng)}
    structure = {"begin": rng.choice(("<f>", "")), "schema": any_schema(rng), "end": rng.choice(("</f>", ""))}
    found: Body = {
        "structures": [structure] * rng.choice((0, 1, 1, 2)),
        "triggers": rng.choice((["<f"], [], ["x"], [""])),
    }
    if rng.random() < 0.3:
        del found[rng.choice(sorted(found))]
    return found


def _as_text(rng: random.Random, value: Any) -> Any:
    if rng.random() < 0.02:
        return deep_text(rng)
    return json.dumps(value) if rng.random() < 0.5 else value


def openai_fields(rng: random.Random) -> Body:
    """Fields of a chat or a completion."""
    dice = rng.random()
    if dice < 0.5:
        makers: dict[str, Callable[[], Any]] = {
            "json": lambda: _as_text(rng, any_schema(rng)),
            "regex": lambda: any_regex(rng),
            "choice": lambda: choices(rng),
            "grammar": lambda: any_ebnf(rng),
            "structural_tag": lambda: json.dumps(structural_tag(rng)),
            "json_object": lambda: rng.choice((True, True, False, 1)),
        }
        kinds = rng.sample(sorted(makers), 2 if rng.random() < 0.05 else 1)
        found = {kind: makers[kind]() for kind in kinds}
        if rng.random() < 0.1:
            strange = (
                "whitespace_pattern",
                "disable_any_whitespace",
                "disable_fallback",
                "_backend",
                "disable_additional_properties",
            )
            found[rng.choice(strange)] = rng.choice((True, "[ ]?", "xgrammar", "guidance", *STRANGE))
        return {"structured_outputs": found}
    if dice < 0.65:
        older = {"json": any_schema(rng), "regex": any_regex(rng), "choice": choices(rng), "grammar": any_ebnf(rng)}
        kind = rng.choice(sorted(older))
        return {f"guided_{kind}": older[kind]}
    if dice < 0.85:
        return {"response_format": response_format(rng)}
    return {
        "tools": [_tool(rng)],
        "tool_choice": rng.choice(("required", "auto", {"type": "function", "function": {"name": "f"}})),
    }


def response_format(rng: random.Random) -> Any:
    kind = rng.choice(("json_object", "json_schema", "json_schema", "structural_tag"))
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {
            "type": kind,
            "json_schema": {"name": "s", "schema": any_schema(rng), "strict": rng.choice((True, None))},
        }
    tag = structural_tag(rng)
    return {**tag, "type": kind} if isinstance(tag, dict) else {"type": kind}


def _tool(rng: random.Random) -> Any:
    return {"type": "function", "function": {"name": "f", "parameters": any_schema(rng)}}


def inputs_grammar(rng: random.Random) -> Body:
    """A grammar of TGI's `parameters`."""
    kind = rng.choice(("regex", "json", "json_object", "json_schema", "ebnf"))
    return {"type": kind, "value": any_regex(rng) if kind == "regex" else _as_text(rng, any_schema(rng))}


def responses_fields(rng: random.Random) -> Body:
    """Fields of a body of /v1/responses."""
    dice = rng.random()
    if dice < 0.7:
        return {"text": {"format": {"type": "json_schema", "name": "s", "schema": any_schema(rng), "strict": True}}}
    if dice < 0.85:
        return {"text": {"format": {"type": rng.choice(("json_object", "text", "grammar"))}}}
    tool = {"type": "function", **_tool(rng)["function"]}
    return {"tools": [tool], "tool_choice": rng.choice(("required", "auto", "none"))}
