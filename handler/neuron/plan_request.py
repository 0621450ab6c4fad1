"""What was asked for, in one spelling: the plain settings, the raw NeuronConfig and the rest of the engine arguments.

People spell the raw configuration in five ways (`override_neuron_config`, `additional_config` and its two sections,
the hyphenated key of the guides, `neuron_config` in our documents) and pass vLLM's arguments beside the plain settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A configuration, sorted.

    :param config: with the engine arguments that have plain settings taken in.
    :param raw: NeuronConfig keys (of the native plugin on its line), underscored.
    :param additional: `additional_config` without its NeuronConfig sections.
    :param speculative: keys of a `speculative_config` beyond model, method and number of tokens.
    :param extra: engine arguments that no plain setting has.
    :param env: variables passed on to the Neuron software.
    """

    config: EndpointConfig
    raw: Mapping[str, Json] = field(default_factory=dict)
    additional: Mapping[str, Json] = field(default_factory=dict)
    speculative: Mapping[str, Json] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    named_by: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> str:
        """What the user called a plain setting: its variable or key, else the setting's own name."""
        source = self.config.source(name).name or self.config.source(f"engine_args.{name}").name
        return source or self.named_by.get(name, name)

    def key(self, name: str) -> str:
        """What the user called a NeuronConfig key."""
        given = self.config.source(f"neuron_config.{name}").name
        whole = self.config.source("neuron_config").name
        named = given or self.named_by.get(f"neuron_config.{name}") or (f"{whole}.{name}" if whole else name)
        return named or "neuron_config"


def conflict(one: str, value: object, other: str, given: object) -> Finding:
    """The same thing asked for twice with different values."""
    why = f"{one} says {str(value)[:60]}, but {other} says {str(given)[:60]}"
    return Finding("conflicting-settings", Severity.ERROR, one, why, f"Keep one of {one} and {other}.")
