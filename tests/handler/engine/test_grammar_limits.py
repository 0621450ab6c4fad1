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
    ],
)
def test_a_nul_at_which_the_reader_of_grammars_dies_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidField, match=r"U\+0000"):
        check_document(document)
