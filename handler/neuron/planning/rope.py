"""Has vLLM read the rotary embedding of a config.json that transformers 5 saved.

It saves `rope_parameters: {"rope_type", "rope_theta", ...}`. transformers 4 reads `rope_theta` and `rope_scaling` only,
and takes 10,000 without a word. vLLM 0.16 has a `rope_parameters` of its own, but writes the `rope_theta` of
transformers' class, a default, into it (vllm/transformers_utils/config.py, patch_rope_parameters). A nested value of
`hf_overrides` is set after that, a plain one before (vllm/config/model.py). NxD Inference reads the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import text_part
from handler.neuron.lines.plan_draft import PlanDraft


def spell_rope(draft: PlanDraft, *, overrides: bool) -> None:
    """Writes `hf_overrides`, or an error if the line does not read them (`overrides`)."""
    config: Mapping[str, Json] = draft.facts.config if draft.facts else {}
    text = text_part(config)
    rope, old, existing = text.get("rope_parameters"), text.get("rope_scaling"), draft.args.get("hf_overrides")
    if not isinstance(rope, dict) or not rope or (existing is not None and not isinstance(existing, dict)):
        return
    kind, theta = rope.get("rope_type", "default"), rope.get("rope_theta")
    scaling = old if isinstance(old, dict) else {}
    if theta == text.get("rope_theta") and kind in ("default", scaling.get("rope_type", scaling.get("type"))):
        return  # both spellings
    problem = ""
    if not overrides or text is not config or any(isinstance(value, dict) for value in rope.values()):
        problem = f"its rope_parameters are those of transformers 5, which {draft.line} does not read here"
    elif text.get("rope_theta") is not None:
        problem = "its rope_theta and its rope_parameters differ"
    if problem:
        fix = "Write rope_theta and rope_scaling with the same values, as transformers 4 reads them."
        draft.error("rope-parameters", f"{draft.facts.where if draft.facts else ''}/config.json", problem, fix)
        return
    parameters: dict[str, Json] = {"rope_parameters": {"rope_type": "default", **rope}}
    value: Json = {**parameters, **({} if theta is None else {"rope_theta": theta}), **(existing or {})}
    draft.complete("hf_overrides", value, "transformers 4 does not read the rope_parameters of transformers 5")
