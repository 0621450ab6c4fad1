"""A schema that constrains nothing is rejected. A recursive schema that constrains something is not."""

from __future__ import annotations

from typing import Any

import pytest

from handler.engine.generation.grammar_limits import check_document
from handler.errors import InvalidField

LIST: dict[str, Any] = {"$ref": "#/$defs/list", "$defs": {"list": {"properties": {"next": {"$ref": "#/$defs/list"}}}}}


def documents(schema: object) -> list[dict[str, Any]]:
    return [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
        {"structured_outputs": {"json": schema}},
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}},
        {"$ref": "#/a~1b", "a/b": {"$ref": "#"}},
    ],
)
def test_a_schema_that_refers_to_itself_alone_is_refused(schema: object) -> None:
    for document in documents(schema):
        with pytest.raises(InvalidField, match="refers to itself") as refused:
            check_document(document)
        assert refused.value.param == next(iter(document))


@pytest.mark.parametrize("schema", [LIST, {"$ref": "#/missing"}, {"$ref": 1}, {"$ref": "other.json"}, "text", None, {}])
def test_others_are_not(schema: object) -> None:
    for document in documents(schema):
        check_document(document)


@pytest.mark.parametrize(
    "document",
    [
        {"structured_outputs": {"regex": "\0"}},
        {"structured_outputs": {"grammar": "root ::= \0"}},
        {"structured_outputs": {"json": {"type": "string", "pattern": "a\0"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"properties": {"\0": {}}}}}},
        {"tool_choice": "required", "tools": [{"function": {"parameters": {"pattern": "\0"}}}]},
        {"tools": [{"function": {"strict": True, "parameters": {"pattern": "\0"}}}]},
        {"tool_choice": "auto", "tools": [{"type": "function", "strict": True, "parameters": {"pattern": "\0"}}]},
    ],
)
def test_a_nul_at_which_the_reader_of_grammars_dies_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidField, match=r"U\+0000"):
        check_document(document)


@pytest.mark.parametrize(
    "structured",
    [
        {"regex": "((a{1,1000}){1,1000}){1,1000}"},
        {"regex": r"(.{0,1000}\d){0,1000}"},
        {"json": {"type": "string", "pattern": "(a{1,1000}){1,1000}"}},
        {"grammar": 'root ::= "(" ("a"{1,1000}){1,1000}'},
    ],
)
def test_repetitions_that_multiply_are_refused_before_anything_reads_them(structured: dict[str, object]) -> None:
    with pytest.raises(InvalidField, match="repetitions multiply"):
        check_document({"structured_outputs": structured})


@pytest.mark.parametrize(
    "structured",
    [
        {"regex": r"(\d{1,3}\.){3}\d{1,3}"},
        {"regex": "[a-z]{1,100000000}"},
        {"regex": r"\(a{1000}\){1000}"},
        {"regex": "[({]{1000}(a){1000}"},
        {"regex": "(a{1000}|b{1000})c{1000}"},
        {"grammar": 'root ::= "(" "a"{1,1000} ")"{1,1000}'},
    ],
)
def test_repetitions_side_by_side_do_not_multiply(structured: dict[str, object]) -> None:
    check_document({"structured_outputs": structured})


def test_a_deep_schema_as_a_text_is_refused() -> None:
    deep = '{"items":' * 100 + "{}" + "}" * 100
    with pytest.raises(InvalidField, match="64 levels"):
        check_document({"structured_outputs": {"json": deep}})
    check_document({"structured_outputs": {"json": '{"enum": ["' + "[" * 100 + '"]}'}})
