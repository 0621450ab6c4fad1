"""What a rule of NeuronConfig is: a small function that says which key breaks it, why, and what fixes it."""

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
    """One rule that raises in NeuronConfig (ValueError or AssertionError there), under a code of ours."""

    code: str
    check: Callable[[ConfigValues], BrokenRule | None]
