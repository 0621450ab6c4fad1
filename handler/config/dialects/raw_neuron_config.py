"""Translates a raw NeuronConfig: `override_neuron_config` and its other spellings. Keys without a field stay raw.

The plugin ignores the hyphenated `override-neuron-config` inside `additional_config`, although the official guide
prints it. It is read here. Its sources keep the spelling, so that a check can warn the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, assign
from handler.errors import SettingError
from handler.json_value import Json

# The keys of a multimodal model's override, which may hold no others.
MULTIMODAL_KEYS = ("text_neuron_config", "vision_neuron_config")


def translate(config: Mapping[str, Json], setting: str, via: str = "") -> list[Assignment]:
    """One assignment for each key. All keys have underscores: a hyphen is read as one.

    :param via: the keys between the setting and this object, as the user spelled them.
    :raises SettingError: an empty key, or a multimodal configuration that is not an object.
    """
    assignments = []
    for spelled, value in config.items():
        path, key = f"{via}.{spelled}" if via else spelled, spelled.replace("-", "_")
        if not key.strip():
            raise SettingError(f"{setting}.{path}", "it is an empty key", "Give the key a name, or remove it.")
        if key in MULTIMODAL_KEYS:
            assignments.append(assign(key, value, setting, path))
        else:
            assignments.append(Assignment("neuron_config", value, key=key, via=path))
    return assignments
