"""`ConfigRule`: a function that checks one rule of NeuronConfig and returns the key, the reason and the fix."""

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
    """One rule on which NxD Inference or the plugin raises. `code` is the code of our finding."""

    code: str
    check: Callable[[ConfigValues], BrokenRule | None]
