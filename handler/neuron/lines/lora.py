"""Writes the LoRA arguments of the NxDI plugin, the fork and vLLM.

The plugin reads `lora_ckpt_json`, a file that names every adapter. The start writes it from `adapter_document` before
the engine starts. The fork takes a list of names and paths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import number
from handler.neuron.lines.plan_draft import PlanDraft

FILE: Final = "lora-adapters.json"
ADAPTER_LIMITS: Final = ("max_loras", "max_lora_rank", "max_cpu_loras")
# The adapter of requests to the model itself. No adapter of a user has a name that begins so.
BASE_ADAPTER: Final = "__model__"


def adapter_file(config: EndpointConfig) -> str:
    """The path of the file that names the adapters for the plugin."""
    return str(config.scratch / FILE)


def base_adapter_directory(config: EndpointConfig) -> Path:
    """Where the start writes the adapter of zeros for the model itself (`handler/model/companions.py`)."""
    return config.scratch / "zero-adapter"


def has_base_adapter(config: EndpointConfig) -> bool:
    """Whether there is room for it beside the named adapters. Otherwise every request must name an adapter."""
    limits = (config.max_loras, number(config.engine_args, "max_cpu_loras") or None)
    return all(limit is None or limit > len(config.lora_modules) for limit in limits)


def adapter_document(config: EndpointConfig, base: str | None = None) -> dict[str, Json]:
    """The content of that file. All paths must be local.

    :param base: the directory of the adapter for requests to the model itself.

    `lora-ckpt-paths` are loaded into device memory. NxDI adds them to `max_loras`, so the list ends there. It always
    needs `lora-ckpt-paths-cpu` too, because vLLM's max_cpu_loras is above 0 (NxDI 0.10, lora_serving/config.py:122
    and :159; plugin 0.5.0, worker/neuronx_distributed_model_runner.py:486).
    """
    adapters: dict[str, Json] = {**({BASE_ADAPTER: base} if base is not None else {}), **config.lora_modules}
    on_device = dict(list(adapters.items())[: config.max_loras])
    return {"lora-ckpt-dir": "/", "lora-ckpt-paths": on_device, "lora-ckpt-paths-cpu": adapters}


def spell_lora_plugin(draft: PlanDraft) -> None:
    """Writes vLLM's LoRA arguments and the override that the plugin needs."""
    if not _arguments(draft, extra_slots=int(has_base_adapter(draft.config))):
        return
    config = draft.config
    if "lora_ckpt_json" not in draft.override and "lora_config" not in draft.override:
        if config.lora_modules:
            draft.override["lora_ckpt_json"] = adapter_file(config)
        else:
            why = "the plugin fails with an AttributeError if no adapters are known at the compile"
            draft.error("lora-without-adapters", "enable_lora", why, "Set lora_modules.")
    if config.lora_target_modules is not None:
        draft.override.setdefault("target_modules", list(config.lora_target_modules))
    elif "target_modules" not in draft.override:
        why = "the plugin needs the names of the modules that the adapters change"
        fix = "Set lora_target_modules to the adapters' target_modules (their adapter_config.json)."
        draft.error("lora-without-target-modules", "lora_target_modules", why, fix)


def spell_lora_fork(draft: PlanDraft) -> None:
    """Writes the fork's LoRA arguments. 0.7.2 takes `lora_modules`; 0.9.1 reads them from the override."""
    if not _arguments(draft):
        return
    config = draft.config
    modules: list[Json] = [{"name": name, "path": path} for name, path in config.lora_modules.items()]
    if not modules:
        why = "adapters are loaded only at the start, and none is configured"
        draft.error("lora-without-adapters", "enable_lora", why, "Set lora_modules.")
    elif draft.line == "fork-0.7.2":
        draft.args["lora_modules"] = modules
    else:
        draft.override["lora_modules"] = modules
    if config.lora_target_modules is not None:
        draft.override.setdefault("target_modules", list(config.lora_target_modules))


def spell_lora_vllm(draft: PlanDraft) -> None:
    """Writes vLLM's own LoRA arguments, with one slot more than there are adapters.

    On a CPU, requests to the base model need a slot too (`handler/engine/adapters/adapter_checkpoint.py`). With too few
    slots the engine alternates between the base model and the adapters, and loads an adapter each time.
    """
    _arguments(draft, extra_slots=1)


def _arguments(draft: PlanDraft, extra_slots: int = 0) -> bool:
    """:param extra_slots: slots that are needed in addition to the adapters'."""
    config = draft.config
    if not config.enable_lora and not config.lora_modules:
        for name in ADAPTER_LIMITS:
            if getattr(config, name, config.engine_args.get(name)) is not None:
                why = "no adapters are served, so it has no effect"
                draft.warn("lora-limits-alone", name, why, "Set enable_lora or lora_modules, or remove it.")
        return False
    draft.args["enable_lora"] = True
    draft.copy("max_loras", "max_lora_rank")
    slots = len(config.lora_modules) + extra_slots
    if config.max_loras is None and config.lora_modules and slots > 1:
        draft.complete(
            "max_loras", slots, "all adapters are served at once" + ", and the base model too" * bool(extra_slots)
        )
    host = max(0, draft.number("max_cpu_loras") or 0) or None  # 0 and less are vLLM's own choice
    name, most = ("max_loras", config.max_loras) if host is None else ("max_cpu_loras", host)
    if most is not None and most < len(config.lora_modules):
        why = f"{len(config.lora_modules)} adapters do not fit into {name} {most}"
        draft.error("too-few-loras", name, why, f"Give {len(config.lora_modules)}.")
    return True
