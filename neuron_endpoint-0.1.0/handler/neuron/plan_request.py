"""`PlanRequest`: a configuration in one spelling: fields, raw NeuronConfig and other engine arguments.

Users spell the raw configuration in five ways: `override_neuron_config`, `additional_config` and its two sections, the
hyphenated key of the guides, and `neuron_config` in our documents. They also give vLLM's arguments beside the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A configuration in one spelling.

    :param config: the fields, with the engine arguments that have a field.
    :param raw: the raw NeuronConfig keys (the native plugin's on its line), with underscores.
    :param additional: `additional_config` without its NeuronConfig sections.
    :param speculative: the keys of a `speculative_config` other than model, method and number of tokens.
    :param extra: engine arguments that have no field.
    :param env: variables that are passed on to the Neuron software.
    :param named_by: field or `neuron_config.<key>` -> the name that the user wrote.
    """

    config: EndpointConfig
    raw: Mapping[str, Json] = field(default_factory=dict)
    additional: Mapping[str, Json] = field(default_factory=dict)
    speculative: Mapping[str, Json] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    named_by: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> str:
        """The name by which the user set a field: a variable or a key, else the field's own name."""
        source = self.config.source(name).name or self.config.source(f"engine_args.{name}").name
        return source or self.named_by.get(name, name)

    def key(self, name: str) -> str:
        """The name by which the user set a raw NeuronConfig key."""
        given = self.config.source(f"neuron_config.{name}").name
        whole = self.config.source("neuron_config").name
        named = given or self.named_by.get(f"neuron_config.{name}") or (f"{whole}.{name}" if whole else name)
        return named or "neuron_config"


def conflict(one: str, value: object, other: str, given: object) -> Finding:
    """The error for two settings that give the same thing different values."""
    why = f"{one} is {str(value)[:60]}, but {other} is {str(given)[:60]}"
    return Finding("conflicting-settings", Severity.ERROR, one, why, f"Keep one of {one} and {other}.")
