"""Sets the two environment variables that FP8 needs on every line of NxD Inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft

VARIABLES: Final = ("XLA_HANDLE_SPECIAL_SCALAR", "UNSAFE_FP8FNCAST")


def uses_fp8(keys: Mapping[str, Json]) -> bool:
    """Whether NeuronConfig keys put weights, activations or the KV cache into FP8."""
    text = keys.get("text_neuron_config")
    if isinstance(text, dict) and uses_fp8(text):
        return True
    weights = bool(keys.get("quantized")) and str(keys.get("quantization_dtype")) in ("f8e4m3", "f8e5m2")
    cache = keys.get("kv_cache_quant") or keys.get("kv_quant_config") is not None
    return weights or bool(cache) or bool(keys.get("quantized_mlp_kernel_enabled"))


def spell_fp8(draft: PlanDraft) -> None:
    """Sets both variables. It is an error if one is set to anything but 1."""
    if not uses_fp8(draft.override):
        return
    for name in VARIABLES:
        value = draft.env.setdefault(name, "1")
        if value != "1":
            why = f"FP8 needs {name}=1; with {value[:20]!r} special values are compiled wrongly"
            draft.error("fp8-variable", name, why, "Set it to 1, or remove it.")
