"""NeuronConfig given raw: `override_neuron_config` and its spellings. Kept as it is, apart from what has a field.

The hyphenated `override-neuron-config` inside `additional_config` is ignored by the plugin although the official guide
prints it. Here it is read, and its sources keep the spelling, so that a check can tell the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, assign
from handler.errors import SettingError
from handler.json_value import Json

# Multimodal configurations: the override may hold nothing but these two.
FIELDS = ("text_neuron_config", "vision_neuron_config")


def translate(given: Mapping[str, Json], setting: str, via: str = "") -> list[Assignment]:
    """One assignment a key.

    :param via: the keys between the setting and this object, as the user spelled them.
    :raises SettingError: a key without a name, or a multimodal configuration that is none.
    """
    found = []
    for key, value in given.items():
        path = f"{via}.{key}" if via else key
        if not key.strip():
            raise SettingError(f"{setting}.{path}", "a key is empty", "Name it, or remove it.")
        if key in FIELDS:
            found.append(assign(key, value, setting, path))
        else:
            found.append(Assignment("neuron_config", value, key=key, via=path))
    return found
