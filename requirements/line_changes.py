"""Prints what changes between two versions of vLLM or of a Neuron plugin, as the list of edits that a new line needs.

    python requirements/line_changes.py 0.24.0 0.29.0                              # engine arguments, from the tables
    python requirements/line_changes.py 0.24.0 0.29.0 --sources OLD_TREE NEW_TREE  # variables and keys as well

A tree is a directory of Python sources, for example an unpacked wheel of vLLM or a checkout of the plugin. It is
parsed, not run. Variables are the names of that form in its texts; keys are the annotated fields of a plugin's
configuration classes. Behind each name that this project mentions stand the files that do: the places to edit.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
TABLES: Final = ROOT / "handler" / "config" / "vllm_arguments"
VARIABLE: Final = re.compile(r"(NEURON|VLLM|NKI)_[A-Z0-9_]*[A-Z0-9]")
CONFIG: Final = re.compile(r"\w*NeuronConfig|OnDeviceSamplingConfig")


def arguments(version: str) -> dict[str, str]:
    """Engine argument -> its kind and its choices, from the table of a version.

    :raises SystemExit: there is no table.
    """
    path = TABLES / f"{version}.json"
    if not path.is_file():
        raise SystemExit(f"There is no {path.relative_to(ROOT)}: python -m requirements.vllm_arguments writes it.")
    table: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: " ".join([about["kind"], *sorted(map(str, about.get("choices", ())))])
        for name, about in table["engine"].items()
    }


def variables(tree: Path) -> dict[str, str]:
    """The environment variables that the sources name."""
    return {name: "" for node in _nodes(tree) for name in _variables(node)}


def keys(tree: Path) -> dict[str, str]:
    """`Class.key` -> its type, for the configuration classes of the sources."""
    return {
        f"{node.name}.{field.target.id}": ast.unparse(field.annotation)
        for node in _nodes(tree)
        if isinstance(node, ast.ClassDef) and CONFIG.fullmatch(node.name)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def report(title: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The names that are gone, new or different, each with the files of this project that mention it."""
    both = sorted(old.keys() & new.keys())
    changes = {
        "removed": [(name, "") for name in sorted(old.keys() - new.keys())],
        "added": [(name, new[name]) for name in sorted(new.keys() - old.keys())],
        "changed": [(name, _change(old[name], new[name])) for name in both if old[name] != new[name]],
    }
    lines = [f"## {title}", ""]
    for change, names in changes.items():
        lines.append(f"{change}: {len(names)}")
        lines += [f"- {name}{f' ({about})' if about else ''}{_places(name)}" for name, about in names]
    return "\n".join((*lines, ""))


def _change(old: str, new: str) -> str:
    """The words that differ: a kind, or choices."""
    gone, come = set(old.split()) - set(new.split()), set(new.split()) - set(old.split())
    return ", ".join([*(f"without {word}" for word in sorted(gone)), *(f"with {word}" for word in sorted(come))])


def _places(name: str) -> str:
    word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    found = [name for name, text in _own_files().items() if word.search(text)]
    return f": {', '.join(found)}" if found else ""


@lru_cache(maxsize=1)
def _own_files() -> Mapping[str, str]:
    paths = (path for folder in ("handler", "container") for path in sorted((ROOT / folder).rglob("*.py")))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def _nodes(tree: Path) -> Iterator[ast.AST]:
    for path in sorted(tree.rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace")))


def _variables(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value):
        yield node.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--sources", type=Path, nargs=2, metavar=("OLD_TREE", "NEW_TREE"))
    chosen = parser.parse_args()
    print(report("Engine arguments", arguments(chosen.old), arguments(chosen.new)))
    if chosen.sources:
        old, new = chosen.sources
        print(report("Environment variables", variables(old), variables(new)))
        print(report("Configuration keys", keys(old), keys(new)))


if __name__ == "__main__":
    main()
