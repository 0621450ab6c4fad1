"""Which values of engine arguments a version of vLLM rejects, read from tables. This module never imports vLLM.

`make test-arguments` gives every argument, and every key of the arguments that are objects, to the parser and the
configuration of the installed vLLM, with values of each class, and writes what they reject.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from handler.config.vllm_argument_table import TABLES
from handler.json_value import Json

VERDICTS: Final = TABLES / "verdicts"
# A companion that is no argument: whether the model has experts.
EXPERTS: Final = "model.experts"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A value that vLLM rejects.

    :param name: the argument, with a dot before a key of it: `profiler_config.profiler`.
    :param why: vLLM's own message.
    :param needs: alternatives under which vLLM accepts it: each is names -> classes of their values.
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


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """What was found out about one argument or key.

    :param rejected: JSON of a value, or a class -> the message.
    :param needs: the same -> the alternatives under which it is accepted.
    :param words: the texts that are accepted, if others are not.
    :param keys: the keys of an object, if others are rejected.
    """

    rejected: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, list[dict[str, str]]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def rejections(version: str, platform: str, arguments: Mapping[str, Json]) -> Iterator[Rejection]:
    """What this version rejects of engine arguments; nothing if it has no table.

    :param platform: `neuron` or `cpu`: vLLM has rules of its own for CPUs.
    """
    for name, value in arguments.items():
        for rejection in _of_value(_table(version, platform), name, value):
            if not any(_met(need, arguments) for need in rejection.needs):
                yield rejection


def object_keys(version: str, name: str) -> tuple[str, ...]:
    """The keys that an object argument may have; empty if any version's table does not limit them."""
    return _table(version, "neuron").get(name, _Verdicts()).keys


def _of_value(table: Mapping[str, _Verdicts], name: str, value: Json) -> Iterator[Rejection]:
    verdicts = table.get(name)
    if verdicts is None or value is None:
        return
    for key in (json.dumps(value), value_class(value)):
        if key in verdicts.rejected and value not in verdicts.words:
            needs = tuple(verdicts.needs.get(key, ()))
            yield Rejection(name, value, verdicts.rejected[key], needs, verdicts.words)
            return
    for key, item in value.items() if isinstance(value, dict) else ():
        if verdicts.keys and key not in verdicts.keys:
            yield Rejection(f"{name}.{key}", item, f"{name} has no key {key[:40]}", (), verdicts.keys)
        else:
            yield from _of_value(table, f"{name}.{key}", item)


def _met(need: Mapping[str, str], arguments: Mapping[str, Json]) -> bool:
    """Whether the arguments have what a rejected value needs."""
    for name, kind in need.items():
        value: Json = dict(arguments)
        for part in name.split(".") if name not in arguments else (name,):
            value = value.get(part) if isinstance(value, dict) else None
        if value_class(value) != kind:
            return False
    return True


@lru_cache(maxsize=4)
def _table(version: str, platform: str) -> Mapping[str, _Verdicts]:
    path = VERDICTS / f"{version}.json"
    if not path.is_file():
        return {}
    table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))[platform]
    return {
        name: _Verdicts(
            found.get("rejected", {}),
            found.get("needs", {}),
            tuple(found.get("words", ())),
            tuple(found.get("keys", ())),
        )
        for name, found in table.items()
    }
