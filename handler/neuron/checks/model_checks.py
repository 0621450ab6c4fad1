"""Checks draft models, adapters, checkpoints and compiled artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from handler.config.dialects.vllm_names import MULTIMODAL_KEYS
from handler.config.finding import Finding
from handler.config.loading.model_file_rules import MOUNT
from handler.json_value import mapping
from handler.neuron.checkpoint.model_facts import number
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.lines.fork import FORK_091
from handler.neuron.lines.line import ConfigKeys, Feature
from handler.neuron.lines.nxdi import NXDI_016
from handler.neuron.lines.optimum_neuron import NAME as OPTIMUM
from handler.neuron.lines.plan_draft import speculative_keys

# The variables of directories that a compile or an engine writes.
WRITTEN: Final = ("BASE_COMPILE_WORK_DIR", "NEURON_COMPILE_CACHE_URL", "NEURON_LIBTORCH_CACHE_ROOT")
RUNTIME_LORA: Final = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


def from_hub(where: str) -> bool:
    """Whether a location is a hub id: neither a directory nor S3."""
    return not where.startswith(("/", "./", "../", "~", "s3://"))


def speculative_edge(context: CheckContext) -> Iterator[Finding]:
    """vLLM needs a further block for the speculated tokens, and there is none: see `length_limits`."""
    if context.nxd and context.values.speculates:
        tokens = context.config.num_speculative_tokens or context.values.number("speculation_length")
        why = f"sequences end {tokens} tokens before max_model_len, because speculation needs room for as many tokens"
        fix = f"Raise max_model_len by {tokens} if requests need the full length."
        yield info("speculative-edge", "max_model_len", why, fix)


def other_method(context: CheckContext) -> Iterator[Finding]:
    """A method that only vLLM itself has, for the CPU line."""
    method = speculative_keys(context.config).get("method")
    if method is None or not context.line.platforms:
        return
    why = f"{context.line.name} does not have the speculation method '{str(method)[:40]}'"
    fix = "Use eagle or draft_model (NxD Inference), or eagle3 (native plugin)."
    yield error("unknown-speculation", "speculative_config", why, fix)


def draft_model(context: CheckContext) -> Iterator[Finding]:
    with_draft = context.config.speculation in (None, "draft_model")
    if context.plugin and with_draft and "speculative_config" in context.draft.args:
        why = "draft-model speculation is documented for the legacy fork only; the plugin fuses the draft all the same"
        fix = "Measure the speed before you rely on it, or use EAGLE."
        yield info("draft-model-undocumented", "speculative_model", why, fix)


def other_weights(context: CheckContext) -> Iterator[Finding]:
    """NxD Inference and the native plugin read the files of a directory, or of the hub's main revision.

    Sources: plugin 0.5.0 and vLLM 0.9.1, _save_pretrained_model; NxDI, utils/hf_adapter.py, load_pretrained_config;
    vllm-neuron 0.24.0.1.1.0, vllm/worker/neuron_model_runner.py, load_model, and utils/checkpoints.py.
    """
    if not context.nxd and context.line.keys is not ConfigKeys.NATIVE:
        return
    form, revision = context.draft.args.get("load_format"), context.draft.args.get("revision")
    if form not in (None, "auto", "safetensors", *(["hf"] if context.nxd else [])):
        why = f"{context.line.name} loads the weights of the checkpoint, whatever it is ({str(form)[:40]})"
        yield warning("load-format-unread", "load_format", why, "Remove it.")
    if revision not in (None, "main") and from_hub(context.config.model):
        why = f"{context.line.name} loads the weights of the main revision, not of {str(revision)[:60]}"
        yield warning("revision-unread", "revision", why, "Download that revision, and set model to its directory.")


def adapters_of_fork(context: CheckContext) -> Iterator[Finding]:
    """vLLM 0.9.1 (model_loader/neuronx_distributed.py:606) passes the adapters by a name that NeuronConfig of SDK 2.26
    (NxDI e07f056, models/config.py:288 and :471) only logs as unexpected. AWS's fork may pass them otherwise."""
    lora = context.config.enable_lora or bool(context.config.lora_modules)
    if lora and context.line.name == FORK_091.name:
        why = "vLLM 0.9.1 gives NxD Inference the adapters by a name that it ignores: answers may be the base model's"
        fix = f"Compare answers with and without an adapter, or set ENDPOINT_LINE to {NXDI_016.name}."
        yield warning("lora-maybe-unread", "enable_lora", why, fix)


def vision_model(context: CheckContext) -> Iterator[Finding]:
    """What the classes of Qwen2-VL and Qwen3-VL assert of their vision model (NxDI 0.10,
    models/qwen2_vl/modeling_qwen2_vl.py:134 and models/qwen3_vl/modeling_qwen3_vl.py:136)."""
    vision, text, setting = context.vision, context.values, context.key("vision_neuron_config")
    if not context.plugin or vision is None:
        return
    if context.architectures[:1] == ("Qwen2VLForConditionalGeneration",):
        if not vision.flag("fused_qkv"):
            yield error("vision-keys", f"{setting}.fused_qkv", "Qwen2-VL needs fused QKV weights", "Set it to true.")
        images = (vision.numbers("buckets") or [vision.number("seq_len")])[-1]
        width, height = (vision.number(f"default_image_{side}") or size for side, size in QWEN2_IMAGE.items())
        tokens, room = round(width / 28) * round(height / 28), (text.numbers("buckets") or [text.number("seq_len")])[-1]
        if tokens <= QWEN2_MOST and images * tokens > room:  # a larger image is reduced
            why = f"{images} images of {tokens} tokens each do not fit into {room} tokens"
            fix = f"Give {[max(room // tokens, 1)]} or less, or raise max_model_len."
            yield error("vision-keys", f"{setting}.buckets", why, fix)
    merge = number(mapping(context.facts.config.get("vision_config")), "spatial_merge_size") if context.facts else 0
    longest, room = vision.number("seq_len") // (merge or 2) ** 2, text.number("max_context_length")
    if context.architectures[:1] == ("Qwen3VLForConditionalGeneration",) and longest > room:
        why = f"its images have up to {longest} tokens, and prompts up to {room}"
        yield error("vision-keys", f"{setting}.seq_len", why, f"Lower it to {room * (merge or 2) ** 2} or less.")


# Qwen2-VL's default image (models/qwen2_vl/utils/constants.py), and the tokens of its largest one (smart_resize).
QWEN2_IMAGE: Final = {"width": 640, "height": 320}
QWEN2_MOST: Final = 1280


def speculation_with_lora(context: CheckContext) -> Iterator[Finding]:
    """The fork's worker asserts it (vllm/worker/neuron_worker.py). The plugin does not."""
    lora = context.config.enable_lora or bool(context.config.lora_modules)
    if context.nxd and not context.plugin and lora and context.values.speculates:
        why = "LoRA adapters do not work together with speculation"
        yield error("speculation-with-lora", "enable_lora", why, "Remove the adapters, or the draft model.")


def adapters(context: CheckContext) -> Iterator[Finding]:
    """Adapters are files on the machine: NxD Inference compiles them into the graph, and on a CPU they are copied."""
    if not context.line.has(Feature.LORA):
        return
    for name, where in context.config.lora_modules.items():
        if from_hub(where):
            why = f"adapter '{name[:60]}' is at '{where[:100]}', and nothing fetches adapters from the hub"
            yield error("lora-not-local", "lora_modules", why, "Give the full path of a directory, or an s3:// URI.")


def adapters_at_run_time(context: CheckContext) -> Iterator[Finding]:
    """Guide "AWS Neuron", Known limitations: adapters are loaded at the start only."""
    if context.line.platforms and context.draft.env.get(RUNTIME_LORA, "").strip().lower() in ("1", "true"):
        why = "adapters are loaded at the start only on Neuron"
        yield error("runtime-lora", RUNTIME_LORA, why, "Remove it, and name the adapters in lora_modules.")


def tied_embeddings(context: CheckContext) -> Iterator[Finding]:
    """Sharding at load cannot copy a tied embedding out of the meta tensors of a hub model."""
    if (
        not context.nxd
        or context.facts is None
        or not context.facts.tied_embeddings
        or not from_hub(context.config.model)
    ):
        return
    if context.values.flag("save_sharded_checkpoint") or context.facts.local:
        return
    why = 'a hub model with tied embeddings fails when it is sharded at load: "Cannot copy out of meta tensor"'
    fix = "Use a local checkpoint or s3://, or set save_sharded_checkpoint to true."
    yield error("tied-embeddings", "model", why, fix)


def hub_model(context: CheckContext) -> Iterator[Finding]:
    """The same, if nothing of the model is on this machine."""
    unknown = context.facts is None and from_hub(context.config.model)
    if context.nxd and unknown and not context.values.flag("save_sharded_checkpoint"):
        why = "a hub model with tied embeddings (tie_word_embeddings in its config.json) fails at load"
        fix = "If it has them, use a local checkpoint or s3://, or set save_sharded_checkpoint to true."
        yield info("tied-embeddings", "model", why, fix)


def artifacts(context: CheckContext) -> Iterator[Finding]:
    """Artifacts that the user names are loaded unchanged."""
    given = context.config.compiled_artifacts or context.draft.env.get("NEURON_COMPILED_ARTIFACTS")
    if context.plugin and not given and not context.config.artifact_store:
        why = f"graphs are compiled into {context.config.scratch}: a restart finds them, a new instance compiles again"
        yield info("artifacts-in-scratch", "artifact_store", why, "Set it to keep them.")
    if not given or not context.line.platforms:
        return
    setting = "compiled_artifacts"
    if context.line.keys is ConfigKeys.NATIVE:
        why = "NEURON_COMPILED_ARTIFACTS may be ignored: vllm-neuron issue 38 contradicts the documentation"
        yield warning("artifacts-maybe-unread", setting, why, "Use VLLM_CACHE_ROOT instead.")
    elif context.line.keys is ConfigKeys.TRANSFORMERS_NEURONX or context.line.name == OPTIMUM:
        yield warning("artifacts-unread", setting, f"{context.line.name} does not read the variable", "Remove it.")
    else:
        ignored = sorted(key for key in context.draft.override if key not in MULTIMODAL_KEYS)
        names = f" ({', '.join(ignored)})" if ignored else ""
        why = f"artifacts are loaded as they were compiled, and a start rejects other settings{names}"
        fix = "Use the settings that they were compiled with, or name an empty directory to compile into."
        yield info("artifacts-fixed", setting, why, fix)


def written_places(context: CheckContext) -> Iterator[Finding]:
    """What a start writes cannot be below the model's directory, which SageMaker mounts read-only."""
    env, config = context.draft.env, context.config
    places = {name: env[name] for name in WRITTEN if name in env} | {context.setting("scratch"): str(config.scratch)}
    where = "below the model's directory, which is read-only on SageMaker"
    fix = "Give a directory elsewhere, as in /tmp/neuron-endpoint, or remove it."
    if config.batch_store and not config.batch_store.startswith("s3://"):
        places[context.setting("batch_store")] = config.batch_store.removeprefix("file://")
    if str(config.scratch).startswith(("~", "s3:/", "file:/")):
        why = f"{str(config.scratch)[:120]} is no path: a start would make a directory of that name where it runs"
        yield error("no-path", context.setting("scratch"), why, "Give a directory's full path, as in /tmp/scratch.")
    for setting, place in places.items():
        if _below_model(place, config.model):
            yield error("read-only-place", setting, f"{place[:120]} is {where}: a start cannot write there", fix)
    artifacts = config.compiled_artifacts
    if artifacts and config.on_miss != "fail" and _below_model(artifacts, config.model):
        why = f"{artifacts[:120]} is {where}: it must hold compiled artifacts, because nothing can be compiled into it"
        fix = "If they are not in the model's archive, name a directory elsewhere, or remove it."
        yield warning("read-only-place", "compiled_artifacts", why, fix)


def _below_model(place: str, model: str) -> bool:
    return any(Path(place).is_relative_to(root) for root in {MOUNT, model})


MODELS: Final = (
    written_places,
    speculative_edge,
    other_method,
    draft_model,
    other_weights,
    adapters_of_fork,
    vision_model,
    speculation_with_lora,
    adapters,
    adapters_at_run_time,
    tied_embeddings,
    hub_model,
    artifacts,
)
