"""Sorts the keys of a NeuronConfig: into this endpoint's fields, the plugin's own keys, and those that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handler.config.assignment import converted
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import field_of_key, fields, nxd_key
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.neuron_config.keys import KEYS, NATIVE_KEYS, NATIVE_SAMPLING_KEYS
from handler.neuron.neuron_config.spelling import WRONG_TYPE, check_keys
from handler.neuron.sampling_limits import KEY as SAMPLING
from model_packaging.migration import nxdi_settings
from model_packaging.migration.migrated_setting import Outcome, SettingTable
from model_packaging.migration.passed_on import NO_KEY

TOP_K: Final = f"neuron_config.{SAMPLING}.max_top_k"
PLUGIN_KEY: Final = "is a key of the plugin"


class NeuronConfigKeys:
    """What the keys become.

    `values` are fields with the values of their keys, `names` the keys that they were written as, `native` the plugin's
    keys, `sampling` those of its sampling, `arguments` vLLM's.
    """

    def __init__(self, config: EndpointConfig, table: SettingTable) -> None:
        self.config, self.table = config, table
        self.values: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.spelled: dict[str, tuple[str, Json]] = {}
        self.native: dict[str, Json] = {}
        self.sampling: dict[str, Json] = {}
        self.arguments: dict[str, Json] = {}

    def sort(self, key: str, value: Json, name: str) -> None:
        """Sorts one key. One that becomes a field gets its row with the field.

        :param name: the name that the user wrote.
        :raises SettingError: NxD Inference does not take the value either.
        """
        if key == SAMPLING:
            self._sort_sampling(value, name)
        elif key in ("ep_degree", "moe_ep_degree") and isinstance(value, int) and value > 1:
            self.native["ep_degree"], self.arguments["enable_expert_parallel"] = value, True
            self.table.add(name, value, Outcome.TRANSLATED, "neuron_config.ep_degree and enable_expert_parallel")
        elif self._becomes_field(key, value, name):
            field = field_of_key()[key]
            row = (name, value)
            if getattr(self.config, field) is None:  # the last of two keys counts; the others get their rows here
                self.names[field], row = name, self.spelled.get(field, ("", None))
                self.spelled[field] = (name, value)
            if row[0]:
                self.table.add(*row, Outcome.AUTOMATIC, f"{field} is given, and has its meaning")
        elif key in nxdi_settings.KEYS:
            self.table.add(name, value, *nxdi_settings.KEYS[key])
        elif key in KEYS and value == KEYS[key].default:
            self.table.add(name, value, Outcome.AUTOMATIC, "is NxD Inference's default, which changes nothing")
        elif key in NATIVE_KEYS and key not in KEYS:
            self.native[key] = value
            self.table.add(name, value, Outcome.KEPT, PLUGIN_KEY)
        else:
            for finding in check_keys({key: value}, KEYS, lambda _: name):
                if finding.code == WRONG_TYPE:
                    raise SettingError(name, finding.why, finding.fix)
            self.table.add(name, value, Outcome.UNAVAILABLE, NO_KEY)

    def _becomes_field(self, key: str, value: Json, name: str) -> bool:
        """:raises SettingError: the field does not take the value."""
        field = field_of_key().get(key)
        if field is None or value is None:
            return False
        derived: Mapping[str, object] = {
            "chunked_prefill_config": bool(value) or None,
            "quantized": "int8" if value is True else None,
            "quantization_dtype": str(value),
            "enable_eagle_speculation": "eagle" if value is True else None,
        }
        if key in derived:
            meant = derived[key]
        elif fields()[field].metadata.nxd is not None and nxd_key(field) == key:
            empty = value == [] and KEYS[key].kind == "list"
            meant = () if empty else converted(fields()[field].convert, value, name)
        else:
            return False
        if (
            meant is not None
            and getattr(self.config, field) is None
            and (key != "quantized" or field not in self.values)
        ):
            self.values[field] = meant
        return meant is not None

    def _sort_sampling(self, value: Json, name: str) -> None:
        self.values["on_device_sampling"] = isinstance(value, dict)
        if not isinstance(value, dict) or not value:
            word = "true" if isinstance(value, dict) else "false"
            self.table.add(name, value, Outcome.TRANSLATED, f"on_device_sampling: {word}")
            return
        for key, item in value.items():
            setting = f"{name}.{key}"
            if key == "global_topk":
                self.sampling["max_top_k"] = item
                self.table.add(setting, item, Outcome.TRANSLATED, TOP_K)
            elif key in NATIVE_SAMPLING_KEYS:
                self.sampling[key] = item
                self.table.add(setting, item, Outcome.KEPT, PLUGIN_KEY)
            else:
                self.table.add(setting, item, *nxdi_settings.SAMPLING.get(key, (Outcome.UNAVAILABLE, NO_KEY)))
