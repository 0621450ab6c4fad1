"""LoRA adapters, as the plugin and the fork want them.

The plugin reads `lora_ckpt_json`, a file that names every adapter (NxDI modules/lora_serving/config.py:
`{"lora-ckpt-dir": ..., "lora-ckpt-paths": {name: file}}`); the container writes it from `adapter_document` before
the engine starts. The fork takes a list of names and paths.
"""

from __future__ import annotations

from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.lines.plan_draft import PlanDraft

FILE: Final = "lora-adapters.json"
PLUGIN_ARGUMENTS: Final = ("max_loras", "max_lora_rank")


def adapter_file(config: EndpointConfig) -> str:
    """Where the container writes the adapters' names for the plugin."""
    return str(config.scratch / FILE)


def adapter_document(config: EndpointConfig) -> dict[str, Json]:
    """What the container writes there. Paths must be local by then."""
    return {"lora-ckpt-dir": "/", "lora-ckpt-paths": dict(config.lora_modules)}


def spell_lora_plugin(draft: PlanDraft) -> None:
    """vLLM's LoRA arguments plus the override that the plugin cannot do without."""
    if not _arguments(draft):
        return
    config = draft.config
    if "lora_ckpt_json" not in draft.override and "lora_config" not in draft.override:
        if config.lora_modules:
            draft.override["lora_ckpt_json"] = adapter_file(config)
        else:
            why = "without adapters known at the compile the plugin ends in an AttributeError"
            draft.error("lora-without-adapters", draft.request.setting("enable_lora"), why, "Set lora_modules.")
    if config.lora_target_modules is not None:
        draft.override.setdefault("target_modules", list(config.lora_target_modules))
    elif "target_modules" not in draft.override:
        why = "the plugin's override needs the modules that the adapters change"
        fix = "Set lora_target_modules to the adapters' target_modules (their adapter_config.json)."
        draft.error("lora-without-target-modules", draft.request.setting("lora_target_modules"), why, fix)


def spell_lora_fork(draft: PlanDraft) -> None:
    """0.7.2 moves `lora_modules` into the override itself; 0.9.1 has no such argument and reads the override."""
    if not _arguments(draft):
        return
    config = draft.config
    modules: list[Json] = [{"name": name, "path": path} for name, path in config.lora_modules.items()]
    if not modules and "lora_modules" not in draft.override:
        why = "adapters are loaded at the start only, and none is named"
        draft.error("lora-without-adapters", draft.request.setting("enable_lora"), why, "Set lora_modules.")
    if modules and draft.line == "fork-0.7.2":
        draft.args["lora_modules"] = modules
    elif modules:
        draft.override.setdefault("lora_modules", modules)
    if config.lora_target_modules is not None:
        draft.override.setdefault("target_modules", list(config.lora_target_modules))


def spell_lora_vllm(draft: PlanDraft) -> None:
    """vLLM's own. On a CPU the bare model's requests need a place too (`handler/engine/adapters/empty_adapter.py`):
    with too few the engine computes them and the adapters' by turns, and fills the place anew each time."""
    _arguments(draft, beside=1)


def _arguments(draft: PlanDraft, beside: int = 0) -> bool:
    """:param beside: places that are needed beside the adapters'."""
    config = draft.config
    if not config.enable_lora and not config.lora_modules:
        return False
    draft.args["enable_lora"] = True
    for name in PLUGIN_ARGUMENTS:
        value = getattr(config, name)
        if value is not None:
            draft.args[name] = value
    places = len(config.lora_modules) + beside
    if config.max_loras is None and config.lora_modules and places > 1:
        draft.complete(
            "max_loras", places, "every adapter is served at once" + ", beside the bare model" * bool(beside)
        )
    elif config.max_loras is not None and config.max_loras < len(config.lora_modules):
        why = f"{len(config.lora_modules)} adapters do not fit into max_loras {config.max_loras}"
        draft.error("too-few-loras", draft.request.setting("max_loras"), why, f"Give {len(config.lora_modules)}.")
    return True
