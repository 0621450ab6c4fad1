"""Compares the `neuron_config.json` of compiled artifacts with the configuration that an endpoint requests.

The plugin loads `NEURON_COMPILED_ARTIFACTS` unchanged and ignores the settings (vllm-project/vllm-neuron,
worker/neuronx_distributed_model_loader.py). A difference that is not reported shows up as wrong limits, failed requests
or wrong replies. The caller decides whether a difference stops the start or leads to a compile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handler.artifacts.external.external_artifacts import SETTING, saved_neuron_config
from handler.artifacts.identity.canonical_json import normal
from handler.config.endpoint_config import DTYPES
from handler.config.field_metadata import KeyWriter
from handler.config.fields import keys_written_by
from handler.config.finding import Finding, Severity
from handler.json_value import Json, mapping
from handler.neuron.engine_plan import EnginePlan

MISSING = object()
# Paths on the machine that compiled, and skip_warmup, which only controls whether each graph runs once after loading.
NOT_COMPARED = frozenset({"quantized_checkpoints_path", "lora_config", "lora_ckpt_json", "skip_warmup"})
# The fields of config.json that must be equal for the graph to fit the weights.
SHAPE = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "num_local_experts",
    "num_experts",
    "tie_word_embeddings",
)


def cross_check(
    saved: Mapping[str, Json],
    plan: EnginePlan,
    *,
    lnc: int | None = None,
    model_config: Mapping[str, Json] | None = None,
) -> tuple[Finding, ...]:
    """Compares `neuron_config.json` with a plan. Returns an ERROR for each field that differs, with both values.

    :param saved: the file's JSON. For a multimodal model it has `text_config` and `vision_config`.
    :param lnc: the logical NeuronCore configuration of this machine.
    :param model_config: config.json of the model to serve, if it is available.
    """
    config = saved_neuron_config(saved, "text_config")
    if config is None:
        why = "neuron_config.json has no 'neuron_config', so the compiled configuration is unknown"
        fix = "Compile again, or give the directory that the compile wrote."
        return (Finding("artifacts-without-neuron-config", Severity.ERROR, SETTING, why, fix),)
    vision = saved_neuron_config(saved, "vision_config") or {}
    compared = [(config, *field) for field in _requested_fields(plan, lnc)]
    for name, value in mapping(plan.section("override_neuron_config").get("vision_neuron_config")).items():
        compared.append((vision, name, f"vision_neuron_config.{name}", value))
    findings = [
        _finding(setting, name, holder.get(name), requested)
        for holder, name, setting, requested in compared
        if name not in NOT_COMPARED and not _same(name, holder.get(name, MISSING), requested)
    ]
    findings += _batching(config, plan)
    findings += _sampling(config, plan)
    findings += _shape(saved, model_config or {})
    return tuple(findings)


def _batching(config: Mapping[str, Json], plan: EnginePlan) -> Iterator[Finding]:
    """Compares `max_num_seqs` with `batch_size`. With chunked prefill the two differ: there `batch_size` is 1."""
    requested = plan.engine_args.get("max_num_seqs")
    overridden = "batch_size" in _text_override(plan) or plan.engine_args.get("enable_chunked_prefill")
    if isinstance(requested, int) and not overridden and config.get("batch_size") != requested:
        yield _finding("max_num_seqs", "batch_size", config.get("batch_size"), requested)


def _sampling(config: Mapping[str, Json], plan: EnginePlan) -> Iterator[Finding]:
    """Compares the sampling configuration. Sampling is on the device unless the override is null.

    The keys of the override must have the saved values.
    """
    override = _text_override(plan)
    requested = override.get("on_device_sampling_config", {})
    saved = config.get("on_device_sampling_config")
    setting = "override_neuron_config.on_device_sampling_config"
    if (requested is None) != (saved is None):
        places = {True: "on the CPU", False: "on the device"}
        yield _finding(setting, "on_device_sampling_config", places[saved is None], places[requested is None])
    elif isinstance(requested, dict) and isinstance(saved, dict):
        for name, value in requested.items():
            if not _same(name, saved.get(name, MISSING), value):
                yield _finding(f"{setting}.{name}", name, saved.get(name), value)


def _shape(saved: Mapping[str, Json], model_config: Mapping[str, Json]) -> Iterator[Finding]:
    saved_text, model_text = _text(saved), _text(model_config)
    for name in SHAPE:
        if name in saved_text and name in model_text and not _same(name, saved_text[name], model_text[name]):
            yield _finding("ENDPOINT_MODEL", name, saved_text[name], model_text[name])


def _text(config: Mapping[str, Json]) -> Mapping[str, Json]:
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _same(name: str, saved: object, requested: Json) -> bool:
    """A nested saved configuration must have the requested keys. It may have more: the defaults that NxDI filled in."""
    if saved is MISSING:
        return requested is None or requested is False
    if isinstance(requested, dict) and isinstance(saved, dict):
        return all(_same(key, saved.get(key, MISSING), value) for key, value in requested.items())
    if name.endswith("dtype") and isinstance(saved, str) and isinstance(requested, str):
        return _dtype(saved) == _dtype(requested)
    present, expected = normal(saved), normal(requested)
    if name == "pa_num_blocks" and isinstance(present, int) and isinstance(expected, int):
        return present in {expected, expected + 1}  # the plugin adds vLLM's null block
    return present == expected and isinstance(present, bool) == isinstance(expected, bool)


def _dtype(name: str) -> str:
    short = name.removeprefix("torch.")
    return DTYPES.get(short, short)


def _finding(setting: str, name: str, saved: object, requested: object) -> Finding:
    why = (
        f"the compiled artifacts have {name} = {_shown(saved)}, but {_shown(requested)} is requested; the plugin "
        "loads them unchanged and ignores the setting"
    )
    fix = f"Set it to {_shown(saved)}, or compile again."
    return Finding(f"artifacts-differ-{name.replace('_', '-')}", Severity.ERROR, setting, why, fix)


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)[:120]


def _text_override(plan: EnginePlan) -> dict[str, Json]:
    """The override of the text model, also if only the vision model has one of its own."""
    return {name: value for name, value in plan.nxd_keys.items() if not name.endswith("_neuron_config")}


def _requested_fields(plan: EnginePlan, lnc: int | None) -> Iterator[tuple[str, str, Json]]:
    """Yields key of NeuronConfig, setting and value. An override takes precedence over an engine argument."""
    override = _text_override(plan)
    # What the plugin fills from an engine argument when no override does (vllm-project/vllm-neuron,
    # worker/neuronx_distributed_model_loader.py, `_get_default_neuron_config`).
    for name, argument in (*keys_written_by(KeyWriter.PLUGIN).items(), ("max_context_length", "max_model_len")):
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


def _depends(name: str, plan: EnginePlan) -> bool:
    """Whether the plugin fills a key from another argument.

    Without prefix caching the block is as long as the model length. With chunked prefill the longest prompt is a chunk.
    """
    if name == "pa_block_size":
        return not plan.engine_args.get("enable_prefix_caching")
    return name == "max_context_length" and bool(plan.engine_args.get("enable_chunked_prefill"))
