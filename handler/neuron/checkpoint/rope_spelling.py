"""Reads the rotary embedding of a config.json as the line's transformers does, or says what to override.

transformers 5 saves `rope_parameters: {"rope_type", "rope_theta", ...}`. transformers 4 reads `rope_theta` and
`rope_scaling` only, and takes 10,000 without a word. vLLM 0.16 has a `rope_parameters` of its own, but writes the
`rope_theta` of transformers' class, a default, into it (vllm/transformers_utils/config.py, patch_rope_parameters).
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.model_config import text_part

ROPE_FIX = "Write rope_theta and rope_scaling too, as transformers 4 reads them."


def rope_overrides(config: Mapping[str, Json], where: str) -> dict[str, Json]:
    """vLLM's `hf_overrides` with which every version reads the file's values; empty if it needs none.

    A nested value is set after vLLM has read the file, a plain one before (vllm/config/model.py, 0.16).

    :raises SettingError: the values cannot be given so, or contradict each other.
    """
    text = text_part(config)
    rope = text.get("rope_parameters")
    if not isinstance(rope, dict) or not rope:
        return {}
    old = {**(_object(text.get("rope_scaling"))), "rope_theta": text.get("rope_theta")}
    if old["rope_theta"] == rope.get("rope_theta") and rope.get("rope_type", "default") in ("default", _type(old)):
        return {}  # both spellings
    setting = f"{where}/config.json"
    if text is not config or any(isinstance(value, dict) for value in rope.values()):
        raise SettingError(
            setting, "its rope_parameters are nested, which this line's transformers does not read", ROPE_FIX
        )
    if old["rope_theta"] is not None:
        raise SettingError(setting, "its rope_theta and rope_parameters differ", "Keep one of the two.")
    found: dict[str, Json] = {"rope_parameters": {"rope_type": "default", **rope}}
    if "rope_theta" in rope:
        found["rope_theta"] = rope["rope_theta"]
    return found


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _type(scaling: Mapping[str, Json]) -> Json:
    return scaling.get("rope_type", scaling.get("type", "default"))
