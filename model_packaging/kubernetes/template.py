"""Fills YAML templates with values, and writes the result as YAML.

`${name}` stands for a value. A key or item whose value is None is left out, and so is a mapping or list of which
nothing is left. A mapping with the key `if` is left out if that value is false. The key `...` adds the members of its
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER = Path(__file__).with_name("templates")
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def fill_template(name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The documents of a template.

    :param name: the template's file, without its suffix.
    :raises KeyError: a value is missing.
    """
    documents = yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return [filled for document in documents if (filled := _filled(document, values))]


def _filled(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, str):
        if match := PLACEHOLDER.fullmatch(node):
            return values[match[1]]
        return PLACEHOLDER.sub(lambda match: str(values[match[1]]), node)
    if isinstance(node, list):
        return [item for each in node if (item := _filled(each, values)) is not None] or None
    if not isinstance(node, dict) or not node:
        return node
    if "if" in node and not _filled(node["if"], values):
        return None
    members: dict[str, Any] = {}
    for key, value in node.items():
        member = _filled(value, values)
        if key == "...":
            members |= member
        elif key != "if" and member is not None:
            members[key] = member
    return members or None


class _Dumper(yaml.SafeDumper):
    """Lists are indented, texts of several lines are blocks, and nothing is an anchor."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


# Texts that PyYAML prints plain, and kubectl's parser reads as numbers or switches.
READ_OTHERWISE: Final = re.compile(r"[-+]?(\d+|\.\d+)[eE][-+]?\d+|[-+]?0\d*[89]\d*|0[ob]\w+|[yYnN]")


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else '"' if READ_OTHERWISE.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(documents: Iterable[Mapping[str, Any]]) -> str:
    dumped = (yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True) for one in documents)
    return "---\n".join(dumped)
