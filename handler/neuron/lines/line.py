"""`Line`: a generation of vLLM and Neuron, with its name, its features and its spelling of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from handler.neuron.lines.feature import Feature
from handler.neuron.lines.plan_draft import PlanDraft


class ConfigKeys(StrEnum):
    """The software whose configuration keys a line's raw NeuronConfig holds."""

    NXDI = "nxdi"
    NATIVE = "native"
    TRANSFORMERS_NEURONX = "transformers-neuronx"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Line:
    """A line: one generation of vLLM and Neuron.

    :param name: the name that a user sets: `nxdi-0.16`.
    :param framework: on the fork's lines, the value of VLLM_NEURON_FRAMEWORK that means this one; "" on all others.
    :param platforms: the Neuron platforms that it runs on; empty for CPU.
    :param sdk: the newest Neuron SDK that contains it, as (major, minor); (0, 0) for CPU.
    :param served: this container can start it. The other lines are for plans only.
    :param spell: completes a draft and writes the line's engine arguments and environment into it.
    """

    name: str
    features: frozenset[Feature]
    keys: ConfigKeys
    platforms: tuple[str, ...]
    sdk: tuple[int, int]
    spell: Callable[[PlanDraft], None]
    framework: str = ""
    served: bool = True

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    @property
    def not_served(self) -> str:
        """Why a start on a line for plans only is rejected."""
        return f"{self.name} is a line for plans only: no image of this project holds it, and it does not start here"
