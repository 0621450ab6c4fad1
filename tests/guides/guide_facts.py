"""The facts of the five guides: what each asks, what it is here, and what shows it. `facts/` has a file for each guide.

A fact is shown in one of four ways:

- settings (`env`, and `model`, `line`, `instance`), typed as a user types them, with what `check` and `plan` say. What
  works on a line for which there is an engine here is started, too (tests/starts);
- a body (`request`) to the endpoint that these settings give;
- a command and what it prints;
- a test of something that settings alone do not show (`test`), in which the words `names` stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FACTS = Path(__file__).parent / "facts"
# What `here` may be -> the severity of the finding that says it; None if there is none.
HERE: Mapping[str, str | None] = {
    "works": None,
    "said": "info",
    "warned": "warning",
    "rejected": "error",
    "engine": None,
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a guide.

    :ivar number: `user-guide-17`, counted through the guide.
    :ivar here: a key of `HERE`.
    :ivar note: what else a user should know, such as the reason for a difference.
    :ivar plan: engine argument -> value. Dots lead into objects; `override` is the raw NeuronConfig of the line.
    :ivar variables: variable of the plan -> value.
    :ivar absent: engine arguments that the plan must not have.
    :ivar keys: key of the NeuronConfig that NxD Inference's class is built with -> value.
    :ivar finding: the code of the finding. `setting` is what it names.
    :ivar silent: codes that `check` must not report.
    :ivar request: the sampling fields of a body. `param` is the field that the 400 names; without it, it is accepted.
    :ivar command: the words of a `neuron-endpoint` command, which prints `prints`.
    """

    number: str
    section: str
    asks: str
    here: str
    note: str = ""
    model: str = ""
    line: str = ""
    instance: str = ""
    env: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    finding: str = ""
    setting: str = ""
    silent: tuple[str, ...] = ()
    request: Mapping[str, Any] | None = None
    param: str = ""
    command: str = ""
    prints: str = ""
    test: str = ""
    names: str = ""

    @property
    def typed(self) -> bool:
        return self.env is not None


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide with its facts.

    :ivar name: the stem of its file and of its page, `user-guide`.
    :ivar line, instance, model: what a fact has that names none.
    """

    name: str
    title: str
    line: str
    instance: str
    model: str
    facts: tuple[Fact, ...]


@cache
def guides() -> tuple[Guide, ...]:
    return tuple(_guide(path) for path in sorted(FACTS.glob("*.yaml")))


def facts() -> Iterator[Fact]:
    for guide in guides():
        yield from guide.facts


def _guide(path: Path) -> Guide:
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    default = {name: document[name] for name in ("line", "instance", "model")}
    shared = document.get("env") or {}
    found: list[Fact] = []
    for section, rows in document["facts"].items():
        for row in rows:
            unknown = set(row) - {one.name for one in fields(Fact)}
            assert not unknown, f"{path.name}: {row['asks']}: {unknown}"
            if "env" in row:
                row = {**default, **row, "env": {**shared, **(row["env"] or {})}}
            listed = {name: tuple(row[name]) for name in ("absent", "silent") if name in row}
            found.append(Fact(f"{path.stem}-{len(found) + 1}", section, **{**row, **listed}))
    return Guide(path.stem, document["guide"], **default, facts=tuple(found))
