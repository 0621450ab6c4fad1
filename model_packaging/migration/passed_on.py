"""Sorts what has no field of its own: engine arguments, variables and the vision section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.config.vllm_argument_table import known
from handler.json_value import Json
from handler.neuron.checks.native_start import NEW, OLD, REJECTED, RENAMED
from handler.neuron.lines.native.native_lines import VISION_SECTION, VISION_SECTIONS
from handler.neuron.lines.plan_draft import additional_config
from handler.neuron.neuron_config.keys import TOP_LEVEL, VISION_KEYS
from handler.neuron.planning.vllm_versions import OF_LINE
from model_packaging.migration import nxdi_settings
from model_packaging.migration.migrated_setting import Outcome, SettingTable

NO_KEY: Final = "the plugin has no such setting"


def arguments(config: EndpointConfig, extra: Mapping[str, Json], line: str, table: SettingTable) -> dict[str, Json]:
    """The engine arguments that the line's vLLM and the plugin have.

    :param extra: the arguments without a field. Those that the user did not write get no row.
    """
    kept: dict[str, Json] = {}
    version = OF_LINE[line]
    for name, value in extra.items():
        argument, setting, rejected = known().get(name), config.setting(name), REJECTED.get(name)
        if name in nxdi_settings.ARGUMENTS:
            table.add(setting, value, *nxdi_settings.ARGUMENTS[name])
        elif rejected and rejected[0](value):
            table.add(setting, value, Outcome.UNAVAILABLE, rejected[1])
        elif argument is not None and version not in argument.versions:
            table.add(setting, value, Outcome.UNAVAILABLE, f"vLLM {version} has no such argument")
        else:
            kept[name] = value
            if name in config.engine_args:
                table.add(setting, value, Outcome.KEPT, "is an argument of vLLM")
    additional: dict[str, Json] = {}
    for key, section in additional_config(config).items():
        if key in TOP_LEVEL:
            additional[key] = section
            table.add(f"additional_config.{key}", section, Outcome.KEPT, "is a key of the plugin")
        else:
            table.add(f"additional_config.{key}", section, Outcome.UNAVAILABLE, NO_KEY)
    return {**kept, "additional_config": additional} if additional else kept


def variables(config: EndpointConfig, table: SettingTable) -> dict[str, str]:
    """The variables that the plugin, its runtime or the compiler read, by their newest names."""
    kept: dict[str, str] = {}
    for name, value in config.neuron_env.items():
        new = name.replace(OLD, NEW) if name.removeprefix(OLD) in RENAMED else name
        reasons = [reason for start, reason in nxdi_settings.VARIABLES.items() if name.startswith(start)]
        if reasons:
            table.add(name, value, *reasons[0])
        else:
            kept[new] = value
            table.add(name, value, Outcome.KEPT if new == name else Outcome.TRANSLATED, new)
    return kept


def vision_section(config: EndpointConfig, line: str, table: SettingTable) -> dict[str, Json] | None:
    """The keys of the vision section that the plugin reads. None if there are none."""
    section: dict[str, Json] = {}
    for key, value in (config.vision_neuron_config or {}).items():
        name = f"{config.setting('vision_neuron_config')}.{key}"
        native = "tp_size" if key == "tp_degree" else key
        if native in VISION_KEYS:
            section[native] = value
            note = f"{VISION_SECTIONS.get(line, VISION_SECTION)}.{native}"
            table.add(name, value, Outcome.KEPT if native == key else Outcome.TRANSLATED, note)
        else:
            table.add(name, value, *nxdi_settings.KEYS.get(key, (Outcome.UNAVAILABLE, NO_KEY)))
    return section or None
