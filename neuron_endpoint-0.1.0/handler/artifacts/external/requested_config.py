"""The NeuronConfig that a plan requests, key by key, as the plugin would fill it."""

from __future__ import annotations

from collections.abc import Iterator

from handler.config.neuron_keys import argument_keys
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan


def text_override(plan: EnginePlan) -> dict[str, Json]:
    """Returns the override for the text model: the whole override, or its text part for a multimodal model."""
    override = _raw(plan)
    text = override.get("text_neuron_config")
    return text if isinstance(text, dict) else {k: v for k, v in override.items() if not k.endswith("_neuron_config")}


def vision_override(plan: EnginePlan) -> dict[str, Json]:
    vision = _raw(plan).get("vision_neuron_config")
    return vision if isinstance(vision, dict) else {}


def _raw(plan: EnginePlan) -> dict[str, Json]:
    additional = plan.engine_args.get("additional_config")
    for holder in (additional if isinstance(additional, dict) else {}, plan.engine_args):
        override = holder.get("override_neuron_config")
        if isinstance(override, dict):
            return override
    return {}


def requested_fields(plan: EnginePlan, lnc: int | None) -> Iterator[tuple[str, str, Json]]:
    """Yields key of NeuronConfig, setting and value. An override takes precedence over an engine argument."""
    override = text_override(plan)
    for name, argument in _from_arguments():
        value = plan.engine_args.get(argument)
        if name in override or value is None or value == "auto" or _depends(name, plan):
            continue
        yield name, argument, value
    for name, value in override.items():
        if name not in {"on_device_sampling_config", "logical_nc_config"}:
            yield name, f"override_neuron_config.{name}", value
    requested = lnc if lnc is not None else override.get("logical_nc_config")
    if requested is not None:
        yield "logical_nc_config", "logical_nc_config", requested


def _from_arguments() -> Iterator[tuple[str, str]]:
    """NeuronConfig's key, and the engine argument that the plugin fills it from when no override does
    (vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py, `_get_default_neuron_config`)."""
    yield from argument_keys().items()
    yield "max_context_length", "max_model_len"


def _depends(name: str, plan: EnginePlan) -> bool:
    """Whether the plugin fills a key from another argument.

    Without prefix caching the block is as long as the model length. With chunked prefill the longest prompt is a chunk.
    """
    if name == "pa_block_size":
        return not plan.engine_args.get("enable_prefix_caching")
    return name == "max_context_length" and bool(plan.engine_args.get("enable_chunked_prefill"))
