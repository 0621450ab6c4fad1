"""`ConfigRule`: one rule on which NxD Inference or the plugin raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from handler.neuron.neuron_config.config_values import ConfigValues


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that is broken. `key` is the NeuronConfig key to change."""

    key: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class ConfigRule:
    """One rule. `code` is the code of our finding."""

    code: str
    check: Callable[[ConfigValues], BrokenRule | None]


def rule(code: str, key: str, broken: Callable[[ConfigValues], object], why: str, fix: str) -> ConfigRule:
    """A rule as a row of a table.

    :param key: the NeuronConfig key to change.
    :param broken: whether a NeuronConfig breaks the rule.
    :param why, fix: the texts, with `{tp_degree}` for the value of a key.
    """

    def check(values: ConfigValues) -> BrokenRule | None:
        return BrokenRule(key, why.format_map(values), fix.format_map(values)) if broken(values) else None

    return ConfigRule(code, check)


def option(code: str, key: str, options: tuple[str, ...], kind: str) -> ConfigRule:
    """A rule that a text is one of several. `kind` is what they are, for the message."""
    fix = f"Use {', '.join(options)}."
    return rule(code, key, lambda values: values.text(key) not in (None, *options), f"'{{{key}}}' is not {kind}", fix)
