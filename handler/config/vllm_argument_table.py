"""vLLM's engine arguments by version, read from tables. This module never imports vLLM.

`python -m requirements.vllm_arguments` writes a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from handler.config.problems import BadValue
from handler.config.values import parse_json, plain, shown, to_bool, to_float, to_int, to_list, to_str
from handler.json_value import Json

TABLES = Path(__file__).with_name("vllm_arguments")
# These tables were read from the source of the forks, which shows no choices. 0.9.1 has those of its parser's help.
INCOMPLETE_CHOICES = frozenset({"0.7.2", "0.9.1"})


def _to_json(value: Json) -> Json:
    """Parses a JSON object or list. Any other text is kept, because some of these arguments take a plain word too."""
    if isinstance(value, str) and value.strip()[:1] in {"{", "["}:
        return parse_json(value)
    return value.strip() if isinstance(value, str) else value


CONVERTERS: Mapping[str, Callable[[Json], Json]] = {
    "bool": to_bool,
    "int": to_int,
    "float": to_float,
    "str": to_str,
    "json": _to_json,
}


@dataclass(frozen=True, slots=True)
class KnownArgument:
    """One argument.

    :param kind: `bool`, `int`, `float`, `str`, `json` or `list`; `item` is the kind of a list's items.
    :param choices: the values that any version accepts; empty if a version accepts every value of the kind.
    :param by_version: the choices by version of vLLM, oldest first. Holds only the versions that have the argument.
    """

    name: str
    kind: str
    item: str
    choices: tuple[Json, ...]
    by_version: Mapping[str, tuple[Json, ...]]

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.by_version)

    def rejected_value(self, value: Json, version: str) -> Json:
        """The value, or the entry of a list, that this version does not accept; None if it accepts all."""
        choices = self.by_version.get(version, ())
        entries = value if isinstance(value, list) else [value]
        return next((entry for entry in entries if choices and entry is not None and entry not in choices), None)

    def convert(self, value: Json) -> Json:
        """The value as vLLM's own parser would read it. None stays None: vLLM's default.

        :raises BadValue: the value is of another kind, or not one of the choices.
        """
        if value is None:
            return None
        if self.kind == "list":
            to_item = CONVERTERS[self.item]
            several = isinstance(value, list) or (isinstance(value, str) and value.strip().startswith("["))
            items: list[Json] = list(to_list(value, to_item)) if several else [to_item(value)]
            for entry in items:
                self._check(entry)
            return items
        converted = CONVERTERS[self.kind](value)
        self._check(converted)
        return plain(converted)

    def _check(self, value: Json) -> None:
        if self.choices and value not in self.choices:
            raise BadValue(f"{shown(value)} is not one of its values", f"Give {', '.join(map(str, self.choices))}")


@lru_cache(maxsize=1)
def known() -> Mapping[str, KnownArgument]:
    """Every engine argument of every version that has a table, without those of the HTTP server in any version.

    The newest version decides the kind. Reading accepts what any version accepts; handler/neuron/checks/line_support.py
    checks a plan against the version of its line.
    """
    arguments: dict[str, KnownArgument] = {}
    for version, table in _tables():
        for name, entry in table["engine"].items():
            if name in server_arguments():
                continue
            choices = tuple(entry.get("choices", ()))
            older: Mapping[str, tuple[Json, ...]] = arguments[name].by_version if name in arguments else {}
            by_version = {**older, version: choices}
            arguments[name] = KnownArgument(name, entry["kind"], entry.get("item", ""), _of_any(by_version), by_version)
    return arguments


def versions() -> tuple[str, ...]:
    """The versions of vLLM that have a table, oldest first."""
    return tuple(version for version, _ in _tables())


def _of_any(by_version: Mapping[str, tuple[Json, ...]]) -> tuple[Json, ...]:
    """The choices of all versions together. Tables that lack choices do not count."""
    known_choices = [choices for version, choices in by_version.items() if version not in INCOMPLETE_CHOICES]
    return tuple(dict.fromkeys(choice for choices in known_choices for choice in choices)) if all(known_choices) else ()


@lru_cache(maxsize=1)
def server_arguments() -> frozenset[str]:
    """The arguments of vLLM's own HTTP server, which this endpoint does not start."""
    return frozenset(name for _, table in _tables() for name in table["server"])


def registered_names(version: str, kind: str) -> tuple[str, ...]:
    """Names that a version of vLLM knows; empty if its table has none.

    :param kind: `architectures`, `model_types` (with those of the transformers that it was installed with),
        `tool_parsers`, `reasoning_parsers`, `quantizations`, `kv_connectors`, `ec_connectors`, `load_formats` or
        `tokenizer_modes`.
    """
    return next((tuple(table.get(kind, ())) for name, table in _tables() if name == version), ())


def variable_forms(version: str) -> Mapping[str, str | Sequence[str]]:
    """vLLM's environment variables that take a number (`int`, `float`) or one of some words only. Empty before 0.16."""
    return next((table.get("variables", {}) for name, table in _tables() if name == version), {})


@lru_cache(maxsize=1)
def _tables() -> tuple[tuple[str, dict[str, Any]], ...]:
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in TABLES.glob("*.json")]
    tables.sort(key=lambda table: tuple(int(part) for part in table["vllm"].split(".")))
    return tuple((table["vllm"], table) for table in tables)
