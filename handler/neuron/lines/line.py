"""What a line is: a name, the features it has, and the spelling of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from handler.neuron.lines.feature import Feature
from handler.neuron.lines.plan_draft import PlanDraft


class ConfigKeys(StrEnum):
    """Whose NeuronConfig keys a line's raw configuration has."""

    NXDI = "nxdi"
    NATIVE = "native"
    TRANSFORMERS_NEURONX = "transformers-neuronx"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of vLLM and Neuron.

    :param name: as a user sets it: `nxdi-0.16`.
    :param framework: the second half of a fork's name, by VLLM_NEURON_FRAMEWORK; "" elsewhere.
    :param platforms: the Neuron platforms it runs on; empty for CPU.
    :param sdk: the newest Neuron SDK it comes with, as (major, minor); (0, 0) for CPU.
    :param spell: completes a draft and writes the line's engine arguments and environment into it.
    """

    name: str
    features: frozenset[Feature]
    keys: ConfigKeys
    platforms: tuple[str, ...]
    sdk: tuple[int, int]
    spell: Callable[[PlanDraft], None]
    framework: str = ""

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    @property
    def title(self) -> str:
        return f"{self.name} ({self.framework})" if self.framework else self.name
