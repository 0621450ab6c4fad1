"""Parses a document of settings as YAML, TOML or JSON. Its name decides the format, or else its content.

The parser is strict: YAML may have no tags that build objects, no aliases (a few lines of them can expand to gigabytes)
and no duplicate keys. Every value must be one that JSON can hold.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from handler.config.problems import BadValue
from handler.config.values import parse_json, plain, shown
from handler.json_value import Json

if TYPE_CHECKING:
    import yaml

FIX = "Write one object of settings, as YAML, TOML or JSON"
# Numbers that mean the same to everybody. YAML 1.1 reads 010 as 8, 1:30 as 90 and 0b11 as 3.
PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*|0x[\da-fA-F]+|\d*\.\d*([eE][-+]\d+)?|\.(inf|Inf|INF|nan|NaN|NAN))|")
FILL_IN = "Fill in a placeholder such as {{ name }}, or put it in quotes"


def parse(body: bytes, name: str = "") -> dict[str, Json]:
    """The object in a document; empty for an empty document.

    :param name: the path or URI. A known file ending decides the format.
    :raises BadValue: not UTF-8, not valid, or not an object. It never quotes the document, which may hold a token.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadValue("it is not UTF-8", FIX) from None
    if not text.strip():
        return {}
    ending = name.rpartition(".")[2].lower()
    if ending == "json" or (ending not in {"yaml", "yml", "toml"} and text.lstrip().startswith("{")):
        document = parse_json(text)
    elif ending == "toml":
        document = _toml(text)
    else:
        document = _yaml(text)
        if isinstance(document, str) and ending not in {"yaml", "yml"}:
            document = _toml(text)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadValue("it is not an object", FIX)
    return document


def _toml(text: str) -> Json:
    try:
        return plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("(")[2].rstrip(")")
        raise BadValue(f"it is not TOML ({place})", "Fix it") from None
    except (ValueError, RecursionError):
        raise BadValue("it is TOML with a value that is too long, or nested too deep", "Fix it") from None


def _yaml(text: str) -> Json:
    import yaml

    try:
        return plain(yaml.load(text, Loader=_loader()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # The parser's message may quote the document. Only the position is passed on.
        raise BadValue(f"it is not YAML{place}", "Fix it") from None
    except BadValue:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, LookupError, AttributeError, TypeError):
        # PyYAML's constructors do not catch what a tag cannot read: `!!int ''`, `!!bool x`, `!!timestamp x`.
        raise BadValue("it is YAML that cannot be read", "Fix it") from None


def _loader() -> type[yaml.SafeLoader]:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader, which also rejects aliases, merge keys and duplicate keys."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise BadValue("it has an alias (*name)", "Write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    place = f"line {key.start_mark.line + 1}, column {key.start_mark.column + 1}"
                    raise BadValue(f"it has a key that is a list or an object ({place})", FILL_IN)
                if key.tag == "tag:yaml.org,2002:merge":
                    raise BadValue("it has a merge key (<<)", "Write the values out")
                if key.value in seen:
                    raise BadValue(f"the key {shown(str(key.value))} is given twice", "Keep one of the two")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

        def construct_number(self, node: Any) -> Any:
            if not PLAIN_NUMBER.fullmatch(node.value):
                place = f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"
                problem = f"it has a number that not all read alike ({place})"
                raise BadValue(problem, "Write it without leading zeros, colons and underscores, or in quotes")
            return self.construct_yaml_float(node) if node.tag.endswith("float") else self.construct_yaml_int(node)

        def construct_date(self, node: Any) -> Any:
            return self.construct_yaml_timestamp(node)

    # lmformatenforcer, which vLLM imports, makes a date a text in every loader of the process.
    yaml.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_date, Loader)
    for kind in ("int", "float"):
        yaml.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_number, Loader)
    return Loader
