"""Which values of engine arguments a version of vLLM rejects, read from tables. This module never imports vLLM.

`make test-arguments` gives every argument, and every key of the arguments that are objects, to the parser and the
configuration of the installed vLLM, with values of each class, and writes what they reject.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from handler.config.vllm_argument_table import TABLES
from handler.json_value import Json

VERDICTS: Final = TABLES / "verdicts"
# The texts that pydantic reads as a switch.
SWITCHES: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on"), "true"),
    **dict.fromkeys(("false", "f", "no", "n", "off"), "false"),
}
# A companion that is no argument: whether the model has experts.
EXPERTS: Final = "model.experts"
# The word that was tried for all that vLLM does not know (tests/argument_verdicts.py).
TRIED_WORD: Final = re.compile("unknown-word", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A value that vLLM rejects.

    :param name: the argument, with a dot before a key of it: `profiler_config.profiler`.
    :param why: vLLM's own message.
    :param needs: alternatives under which vLLM accepts it: each is names -> their values in JSON, or classes of them.
    :param accepted: the texts that it accepts, or the keys that an object may have; empty if they are not known.
    """

    name: str
    value: Json
    why: str
    needs: tuple[Mapping[str, str], ...] = ()
    accepted: tuple[str, ...] = ()


def value_class(value: Json) -> str:
    """The class of a value. vLLM's verdict on a value that was not tried is that on its class."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return "<0" if value < 0 else str(int(value)) if value in (0, 1) else "fraction" if value < 1 else ">1"
    if isinstance(value, list):
        return f"[{value_class(value[0])}]" if value else "[]"
    return "object" if isinstance(value, dict) else "text"


def tried_class(value: Json) -> str:
    """The class by which a table has a value that was tried: that of a text that spells another class is its own."""
    meant = _class_of_text(value) if isinstance(value, str) else None
    return value_class(value) if meant is None else f"text:{meant}"


def rejections(version: str, platform: str, arguments: Mapping[str, Json]) -> Iterator[Rejection]:
    """What this version rejects of engine arguments; nothing if it has no table.

    :param platform: `neuron` or `cpu`: vLLM has rules of its own for CPUs.
    """
    table = _table(version, platform)
    for name, value in arguments.items():
        for rejection in _of_value(table, name, value):
            if not any(_met(need, arguments) for need in rejection.needs):
                yield rejection


def _of_value(table: Mapping[str, Any], name: str, value: Json) -> Iterator[Rejection]:
    """What a table says of one argument or key: `rejected` has messages by value or class, `needs` companions by the
    same, `words` the texts that are accepted if others are not, and `keys` those of an object that takes no others.
    Without those that are `required` an object is rejected."""
    verdicts = table.get(name, {})
    if value is None:
        return
    keys, kind = [json.dumps(value), tried_class(value)], value_class(value)
    if kind == keys[1] or keys[1].removeprefix("text:") in verdicts.get("rejected", ()):
        keys.append(kind)  # where vLLM wants a number or a switch, it reads a text that spells one
    for key in keys:
        if key in verdicts.get("rejected", ()) and value not in verdicts.get("words", ()):
            needs = tuple(verdicts.get("needs", {}).get(key, ()))
            why = TRIED_WORD.sub(lambda _: str(value)[:40], verdicts["rejected"][key])
            yield Rejection(name, value, why, needs, tuple(map(str, verdicts.get("words", ()))))
            return
    allowed = verdicts.get("keys", ())
    for key in verdicts.get("required", ()):
        if isinstance(value, dict) and key not in value:
            yield Rejection(f"{name}.{key}", None, f"{name} needs {key}")
    for key, item in value.items() if isinstance(value, dict) else ():
        if allowed and key not in allowed:
            yield Rejection(f"{name}.{key}", item, f"{name} has no key {key[:40]}", (), tuple(allowed))
        else:
            yield from _of_value(table, f"{name}.*" if f"{name}.*" in table else f"{name}.{key}", item)


def _class_of_text(text: str) -> str | None:
    """The class of the number or the switch that a text of any length spells. None: it spells neither."""
    spelled = text.strip().lower()
    if spelled in SWITCHES:
        return SWITCHES[spelled]
    if spelled.isascii() and spelled.isdecimal():
        digits = spelled.lstrip("0")
        return digits if digits == "1" else ">1" if digits else "0"
    try:
        return value_class(float(spelled))
    except ValueError:
        return ">1" if all(part.isdecimal() for part in spelled.split(".")) else None  # a version


def _met(need: Mapping[str, str], arguments: Mapping[str, Json]) -> bool:
    """Whether the arguments have what a rejected value needs."""
    for name, kind in need.items():
        value: Json = dict(arguments)
        for part in name.split(".") if name not in arguments else (name,):
            value = value.get(part) if isinstance(value, dict) else None
        if kind not in (value_class(value), json.dumps(value)):
            return False
    return True


@lru_cache(maxsize=4)
def _table(version: str, platform: str) -> Mapping[str, Any]:
    path = VERDICTS / f"{version}.json"
    tables = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    table: Mapping[str, Any] = tables.get(platform, {})
    return table
