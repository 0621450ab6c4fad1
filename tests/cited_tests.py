"""The source of a test that a table cites as `file::test` or `file::test[case]`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent


def source_of(cited: str) -> str:
    """The test with its decorators, or the one case of a table that it has. The tables that it names count too."""
    named = re.fullmatch(r"(\w+)::(\w+)(?:\[(.+)\])?", cited)
    assert named, cited
    file, test, case = named.groups()
    text, tree = _module(file)
    assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), cited
    if case is not None:
        dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        pairs = [pair for node in dicts for pair in zip(node.keys, node.values, strict=True)]
        found: list[ast.AST] = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == case]
        assert found, f"{file} has no case {case}"
        parts = found[:1]
    else:
        (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
        parts = [function, *function.decorator_list]
    used = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            parts += [node] if stored & used else []
    return f"{case or ''} " + " ".join(ast.get_source_segment(text, part) or "" for part in parts)


@cache
def _module(name: str) -> tuple[str, ast.Module]:
    (path,) = TESTS.rglob(f"{name}.py")
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)
