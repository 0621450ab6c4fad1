"""Checks what optimum-neuron's plugin rejects or ignores at a start: arguments, models, and the shape of an export.

Sources: optimum-neuron 0.4.5, optimum/neuron/vllm/ (worker.py, runner.py, model_loader.py), utils/instance.py,
models/inference/auto_models.py and models/inference/backend/modules/decoder/decoder_wrappers.py; vLLM 0.11.0,
v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.json_value import Json, whole_number
from handler.neuron.checkpoint.file_findings import not_checked
from handler.neuron.checkpoint.model_facts import stored_quantization
from handler.neuron.checks.check_context import (
    CheckContext,
    Rejected,
    dtype_of,
    error,
    info,
    rejected,
    unread,
    unsupported_model,
    warning,
)
from handler.neuron.lines.optimum_neuron import EXPORTED, NAME

REJECTED: Final[Rejected] = {
    "pipeline_parallel_size": ((None, 1), "the plugin has no pipeline parallelism"),
    "data_parallel_size": ((None, 1), "the plugin has no data parallelism"),
    "speculative_config": ((None,), "the plugin has no speculation"),
    "enable_sleep_mode": ((None, False), "the plugin has no sleep mode"),
    "kv_transfer_config": ((None,), "the plugin moves no KV cache"),
    "kv_cache_dtype": ((None, "auto"), "the KV cache has the data type of the export"),
    "quantization": ((None,), "the plugin loads weights in the data type of the export only"),
    "structured_outputs": ((None, False), "the plugin applies no grammar"),
    "logprobs": ((None, False), "the plugin returns no log probabilities"),
    "task": ((None, "auto", "generate"), "embeddings are served from vLLM 0.16 on"),
    "runner": ((None, "auto", "generate"), "embeddings are served from vLLM 0.16 on"),
    "convert": ((None, "auto", "none"), "the plugin generates text only"),
}
# Arguments that vLLM takes and that the plugin's runner and loader do not read -> the values that mean nothing anyway.
UNREAD: Final[Rejected] = {
    "load_format": ((None, "auto", "safetensors"), "the plugin loads the weights of the export, whatever it is"),
    "logits_processors": ((None, []), "the plugin applies no logits processors"),
    "cpu_offload_gb": ((None, 0), "the weights are on the device"),
    "kv_cache_memory_bytes": ((None,), "the KV cache has the size of the export"),
    "enforce_eager": ((None, False), "the device has compiled graphs only"),
    "hf_overrides": ((None, {}), "the plugin reads config.json itself"),
}
MODEL_TYPES: Final = ("granite", "llama", "llama4_text", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3")
# Platform -> what the exporter calls it.
TARGETS: Final = {"inf2": "trn1", "trn1": "trn1", "trn2": "trn2"}
EXPORT: Final = "export the model again (optimum-cli export neuron)"
FILE: Final = "neuron_config.json"
# Key of an export -> the package that loads exports of its own version only (configuration_utils.py, from_dict), and
# the version that the line was tried with.
VERSIONS: Final = {"optimum_neuron_version": ("optimum-neuron", "0.4.5"), "neuronxcc_version": ("neuronx-cc", None)}
# The plugin's switch for models that are not in the hub's cache (model_loader.py).
LOADER, ON_THE_FLY = "model_loader_extra_config", "allow_non_cached_model"
EXPORT_CLASS: Final = "NxDNeuronConfig"


def arguments(context: CheckContext) -> Iterator[Finding]:
    """What the plugin does not have: its worker or its loader would end, or it would have no effect."""
    if context.line.name != NAME:
        return
    yield from rejected(context, "not-on-optimum", REJECTED)
    yield from unread(context, "unread-on-optimum", UNREAD)
    kind = context.facts.model_type if context.facts else MODEL_TYPES[0]
    if kind not in MODEL_TYPES and f"{kind}_text" not in MODEL_TYPES:
        why = f"optimum-neuron's plugin has no models of type '{kind[:40]}'"
        yield unsupported_model(context, why, f"Supported: {', '.join(MODEL_TYPES)}.")
    if (stored := stored_quantization(context.facts.config) if context.facts else None) is not None:
        method = shown(stored.get("quant_method"))  # FP8 would be read without its scales, and answer nonsense
        why = f"its weights are quantized ({method}), and optimum-neuron loads plain weights only"
        yield unsupported_model(context, why, "Use the model that is not quantized.")
    tokens, length = context.draft.number("max_num_batched_tokens"), context.draft.number("max_model_len")
    if tokens is not None and length is not None and tokens < length:
        why = f"a prompt of more than {tokens} tokens would wait for ever: without chunked prefill it needs one step"
        yield error("token-budget", "max_num_batched_tokens", why, f"Remove it, or give {length}.")


def export(context: CheckContext) -> Iterator[Finding]:
    """Compares an exported model with the settings. The plugin loads it as it is, and a larger batch ends its core."""
    if context.line.name != NAME:
        return
    saved = context.facts.exported if context.facts else {}
    if context.config.artifact_store:
        why = "the exported directory is the artifacts: nothing is saved in a store"
        yield info("store-unused", "artifact_store", why, "Remove it.")
    if not saved:
        yield from _not_exported(context)
        if context.config.on_device_sampling is False:
            why = "where the model samples is decided by its export, and it samples on the device by default"
            yield warning("sampling-of-export", "on_device_sampling", why, "Remove it.")
        return
    asked: dict[str, Json] = {name: context.draft.args.get(name) for name in EXPORTED}
    asked["dtype"] = dtype_of(context.draft)
    asked["on_device_sampling"] = context.config.on_device_sampling
    for name, key in {**EXPORTED, "on_device_sampling": "on_device_sampling"}.items():
        value, compiled = asked[name], saved.get(key)
        fits = value == compiled
        if name in ("max_model_len", "max_num_seqs") and isinstance(value, int) and isinstance(compiled, int):
            fits = value <= compiled
        if None not in (value, compiled) and not fits:
            yield _differs(name, key, compiled, value, f"Set {name} to {compiled}, or {EXPORT}.")
    prompt, sequence = saved.get("max_context_length"), saved.get("sequence_length")
    length = context.draft.number("max_model_len") or 0
    if isinstance(prompt, int) and isinstance(sequence, int) and prompt < min(length, sequence):
        fix = f"Set max_model_len to {prompt}, or {EXPORT}."
        yield _differs("max_model_len", "max_context_length", prompt, length, fix)
    batch = saved.get("batch_size")
    if isinstance(batch, int) and batch > 1 and saved.get("continuous_batching") is not True:
        fix = f"{EXPORT.capitalize()}."
        yield _differs("model", "continuous_batching", saved.get("continuous_batching"), True, fix)
    platform, target = context.instance.platform if context.instance else "", saved.get("target")
    if platform and target is not None and target != TARGETS.get(platform):
        fix = f"Use an instance with {target}, or {EXPORT}."
        yield _differs("instance", "target", target, platform, fix)


def _not_exported(context: CheckContext) -> Iterator[Finding]:
    args, dtype = context.draft.args, dtype_of(context.draft)
    shape = ", ".join(f"{name} {args.get(name)}" for name in EXPORTED if name != "dtype")
    cached = f"graphs of exactly {shape} and {dtype} in the hub's cache"
    fix = f"Export it (optimum-cli export neuron), or set {LOADER} to {ON_THE_FLY} to compile it at each start."
    if context.config.network_isolation:
        why = "it is not exported, and a start without a network does not reach the hub's cache of graphs"
        yield error("optimum-needs-export", "model", why, "Export it (optimum-cli export neuron).")
    elif args.get(LOADER) == ON_THE_FLY:
        why = f"it is not exported: without {cached}, each start compiles it, on each instance anew"
        yield warning("optimum-needs-export", "model", why, "Export it (optimum-cli export neuron).")
    else:
        yield warning("optimum-needs-export", "model", f"it is not exported: a start needs {cached}, or ends", fix)
        yield not_checked("model", cached)


def export_on_another_line(context: CheckContext) -> Iterator[Finding]:
    """An export has graphs, and its weights are below it. Beside the original weights it does not matter."""
    facts = context.facts
    if context.line.name != NAME and facts is not None and facts.exported and not facts.weight_bytes:
        why = f"it is an export of optimum-neuron ({FILE}), which {context.line.name} does not load"
        yield unsupported_model(context, why, f"Set ENDPOINT_LINE to {NAME}, or give the original model.")


def versions_of_export(context: CheckContext) -> Iterator[Finding]:
    """The plugin ends at an export that another version of itself or of the compiler has made."""
    saved = context.facts.exported if context.facts else {}
    if context.line.name != NAME or not saved:
        return
    for key, (package, tried) in VERSIONS.items():
        exporter, here = saved.get(key), context.installed.get(package)
        if not isinstance(exporter, str):
            yield error("export-invalid", "model", f"its {FILE} has no {key}", f"{EXPORT.capitalize()}.")
            continue
        name, only = f"{package} {exporter[:60]}", "the plugin loads exports of the installed version only"
        code, fix = f"artifacts-differ-{key.replace('_', '-')}", f"Use an image with {name}, or {EXPORT}."
        if here is not None and here != exporter:
            yield error(code, "model", f"it was exported with {name}, {here} is installed, and {only}", fix)
        elif here is None and exporter != tried:
            known = f", and this line was tried with {tried}" if tried else ""
            severity = warning if tried else info
            yield severity(code, "model", f"it was exported with {name}{known}; {only}", fix)
    for key in (*EXPORTED.values(), "max_context_length", "max_topk"):
        value, text = saved.get(key), key == "torch_dtype"
        if value is not None and not (isinstance(value, str) if text else whole_number(value) is not None):
            why = f"{key} of {FILE} is {shown(value)}, and not a {'text' if text else 'whole number'}"
            yield error("export-invalid", "model", why, f"{EXPORT.capitalize()}.")
    if saved.get("_serialized_key") != EXPORT_CLASS:
        key = shown(saved.get("_serialized_key"))
        why = f"_serialized_key of {FILE} is {key}, and the plugin loads {EXPORT_CLASS} only"
        yield error("export-invalid", "model", why, f"{EXPORT.capitalize()}.")


def _differs(setting: str, key: str, compiled: Json, asked: Json, fix: str) -> Finding:
    why = f"the model was exported with {key} {compiled}, not {asked}, and the plugin loads it as it is"
    return error(f"artifacts-differ-{key.replace('_', '-')}", setting, why, fix)


OPTIMUM: Final = (arguments, export, export_on_another_line, versions_of_export)
