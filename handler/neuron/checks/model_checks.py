"""Drafts, adapters, checkpoints and compiled artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.lines.feature import Feature
from handler.neuron.lines.line import ConfigKeys


def _from_hub(where: str) -> bool:
    """A hub id: neither a directory nor S3."""
    return not where.startswith(("/", "./", "../", "~", "s3://"))


def eagle_draft(case: CheckContext) -> Iterator[Finding]:
    """An EAGLE draft must hold the target's LM head, which published EAGLE checkpoints leave out."""
    draft = case.config.speculative_model
    if not case.nxd or not case.values.eagle or draft is None:
        return
    why = "NxD Inference wants the target's LM head in the EAGLE draft's checkpoint"
    fix = "Copy lm_head.weight of the target into the draft, and serve that copy."
    if _from_hub(draft):
        yield warning("eagle-lm-head", case.setting("speculative_model"), f"{why}; one from the hub has none", fix)
    else:
        yield info("eagle-lm-head", case.setting("speculative_model"), why, fix)


def speculative_edge(case: CheckContext) -> Iterator[Finding]:
    """vLLM wants a further block for the tokens looked ahead, and there is none: see `length_limits`."""
    if case.nxd and case.values.speculates:
        tokens = case.config.num_speculative_tokens or case.values.number("speculation_length")
        why = f"sequences end {tokens} tokens before max_model_len, since speculation looks that far ahead"
        fix = "Raise max_model_len by as much, if requests need it."
        yield info("speculative-edge", case.setting("max_model_len"), why, fix)


def other_method(case: CheckContext) -> Iterator[Finding]:
    """A method of vLLM's own, which only the CPU line and, for DFlash, the native plugin have."""
    given = case.draft.request.extra.get("speculative_config")
    if not isinstance(given, dict) or not case.line.platforms:
        return
    method = given.get("method")
    if case.line.keys is ConfigKeys.NATIVE and method == "dflash":
        return
    why = f"{case.line.title} does not have speculation by '{str(method)[:40]}'"
    fix = "Use eagle or draft_model (NxD Inference), or eagle3 or dflash (native plugin)."
    yield error("unknown-speculation", case.setting("speculative_config"), why, fix)


def draft_model(case: CheckContext) -> Iterator[Finding]:
    if case.plugin and "speculative_config" in case.draft.args and case.config.speculation in (None, "draft_model"):
        why = "draft-model speculation is documented for the legacy fork only, but the plugin does fuse the draft"
        yield info("draft-model-undocumented", case.setting("speculative_model"), why, "Measure it, or use EAGLE.")


def speculation_with_lora(case: CheckContext) -> Iterator[Finding]:
    """The fork's worker asserts it (vllm/worker/neuron_worker.py)."""
    lora = case.config.enable_lora or bool(case.config.lora_modules)
    if case.nxd and lora and case.values.speculates:
        why = "LoRA adapters do not work together with speculation"
        yield error("speculation-with-lora", case.setting("enable_lora"), why, "Do without one of the two.")


def adapters(case: CheckContext) -> Iterator[Finding]:
    """Adapters are loaded into the graph: they must be files on the machine before the compile."""
    if not case.nxd or not case.line.has(Feature.LORA):
        return
    for name, where in case.config.lora_modules.items():
        if _from_hub(where):
            why = f"adapter '{name[:60]}' is at '{where[:100]}', and adapters must be local before the compile"
            fix = "Give a directory with its full path, or s3://."
            yield error("lora-not-local", case.setting("lora_modules"), why, fix)


def tied_embeddings(case: CheckContext) -> Iterator[Finding]:
    """Sharding at load cannot copy a tied embedding out of a hub id's meta tensors."""
    if not case.nxd or case.facts is None or not case.facts.tied_embeddings or not _from_hub(case.config.model):
        return
    if case.values.flag("save_sharded_checkpoint") or case.facts.local:
        return
    why = 'a hub id with tied embeddings, sharded at load, ends in "Cannot copy out of meta tensor"'
    fix = "Use a local checkpoint or s3://, or set save_sharded_checkpoint to true."
    yield error("tied-embeddings", case.setting("model"), why, fix)


def artifacts(case: CheckContext) -> Iterator[Finding]:
    """Artifacts named outright are loaded as they stand."""
    given = case.config.compiled_artifacts or case.draft.env.get("NEURON_COMPILED_ARTIFACTS")
    if not given or not case.line.platforms:
        return
    setting = case.setting("compiled_artifacts")
    if case.line.keys is ConfigKeys.NATIVE:
        why = "the documentation says that NEURON_COMPILED_ARTIFACTS is read, vllm-neuron issue 38 that it is not"
        yield warning("artifacts-maybe-unread", setting, why, "Use VLLM_CACHE_ROOT.")
    elif case.line.name != "optimum":
        ignored = sorted(
            key for key in case.draft.override if key not in ("text_neuron_config", "vision_neuron_config")
        )
        names = f" ({', '.join(ignored)})" if ignored else ""
        why = f"artifacts are loaded as they were compiled: other settings{names} are ignored, and not compared"
        yield info("artifacts-fixed", setting, why, "Use the settings they were compiled with, or compile anew.")


MODELS: Final = (
    eagle_draft,
    speculative_edge,
    other_method,
    draft_model,
    speculation_with_lora,
    adapters,
    tied_embeddings,
    artifacts,
)
