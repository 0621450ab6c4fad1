"""Values that a start ends on, or that are replaced in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORKS
from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.lines.nxdi import SCHEDULER
from handler.neuron.lines.shared_spelling import DEFAULT_SEQUENCES

POSITIVE: Final = (
    "tensor_parallel_size",
    "max_model_len",
    "ctx_batch_size",
    "max_context_length",
    "block_size",
    "num_gpu_blocks_override",
    "global_topk",
    "max_loras",
    "max_lora_rank",
    "nodes",
)
BUCKETS: Final = ("context_encoding_buckets", "token_generation_buckets")


def positive(case: CheckContext) -> Iterator[Finding]:
    """Counts and lengths below 1."""
    for name in POSITIVE:
        value = getattr(case.config, name)
        if value is not None and value < 1:
            yield error("not-positive", case.setting(name), f"{value} is below 1", "Give 1 or more, or leave it out.")
    sequences = case.config.max_num_seqs
    if sequences is not None and sequences < 1:
        replaced = f"the plugin replaces it by {DEFAULT_SEQUENCES} in silence" if sequences == 0 else "it is below 1"
        why = f"max_num_seqs is {sequences}: {replaced}"
        yield error("max-num-seqs", case.setting("max_num_seqs"), why, "Give 1 or more, or leave it out.")
    for name in BUCKETS:
        buckets = getattr(case.config, name)
        if buckets is not None and (not buckets or min(buckets) < 1):
            why = "a bucket is a length of 1 token or more, and there must be one"
            yield error("bucket-not-positive", case.setting(name), why, "Name lengths above 0, or leave it out.")


def length_of_model(case: CheckContext) -> Iterator[Finding]:
    """The plugin switches vLLM's own check of the model's length off."""
    limit = case.facts.max_position_embeddings if case.facts else None
    length = case.draft.number("max_model_len")
    if limit is None or length is None or length <= limit or not case.line.platforms:
        return
    why = f"the model was trained for {limit} tokens, not {length}, and on Neuron vLLM does not check it"
    yield warning("length-beyond-model", case.setting("max_model_len"), why, f"Lower it to {limit} or less.")


def bucket_coverage(case: CheckContext) -> Iterator[Finding]:
    """A request that is longer than the largest bucket fails when it comes (NxDI, autobucketing)."""
    if not case.nxd or not case.values.flag("enable_bucketing"):
        return
    limits = {
        "context_encoding_buckets": ("prompts", case.values.number("max_context_length")),
        "token_generation_buckets": ("sequences", case.values.number("max_length")),
    }
    for key, (what, limit) in limits.items():
        buckets = case.values.numbers(key)
        if buckets and max(buckets) < limit:
            why = f"{what} may have {limit} tokens, but the largest bucket has {max(buckets)}: longer ones are refused"
            yield warning("bucket-coverage", case.key(key), why, f"Add {limit} to the buckets, or lower the length.")


def framework(case: CheckContext) -> Iterator[Finding]:
    """VLLM_NEURON_FRAMEWORK names a framework that the line does not have."""
    named = case.draft.request.env.get("VLLM_NEURON_FRAMEWORK")
    if named is None:
        return
    fix = f"Leave it out, or set ENDPOINT_LINE to a line that has it; known: {', '.join(FRAMEWORKS)}."
    has = {"nxdi": FRAMEWORKS[0], "fork": case.line.framework, "opti": FRAMEWORKS[2]}.get(case.line.name[:4])
    if named not in FRAMEWORKS:
        why = f"'{named[:60]}' is no framework of vLLM on Neuron"
        yield error("unknown-framework", "VLLM_NEURON_FRAMEWORK", why, fix)
    elif named != has:
        why = f"{case.line.title} does not run on {named}"
        yield error("framework-not-in-line", "VLLM_NEURON_FRAMEWORK", why, fix)


def model_type(case: CheckContext) -> Iterator[Finding]:
    """Models that NxD Inference has no code for."""
    if not case.nxd or case.facts is None:
        return
    kind = case.facts.model_type.removesuffix("_text")
    if kind == "mllama" and case.plugin:
        why = "Llama 3.2 Vision (mllama) runs on the legacy fork only"
        yield error("unsupported-model", case.setting("model"), why, "Set ENDPOINT_LINE to fork-0.9.1.")
    elif kind not in MODEL_TYPES:
        why = f"NxD Inference has no model of type '{kind[:40]}'"
        yield error("unsupported-model", case.setting("model"), why, f"Supported: {', '.join(MODEL_TYPES)}.")


MODEL_TYPES: Final = (
    "gpt_oss",
    "llama",
    "llama4",
    "mllama",
    "mistral",
    "mixtral",
    "pixtral",
    "dbrx",
    "qwen2",
    "qwen2_vl",
    "qwen3",
    "qwen3_moe",
    "gemma3",
    "qwen3_vl",
)


def scheduler(case: CheckContext) -> Iterator[Finding]:
    """The custom scheduler replaces the token budget."""
    tokens = case.draft.request.extra.get("max_num_batched_tokens")
    if case.plugin and tokens is not None and SCHEDULER not in case.draft.env:
        why = "the plugin's own scheduler replaces max_num_batched_tokens by 131072"
        yield warning("token-budget-replaced", case.setting("max_num_batched_tokens"), why, "Leave it out.")


def optimum_compiles_nothing(case: CheckContext) -> Iterator[Finding]:
    if case.line.name == "optimum":
        why = "optimum-neuron does not compile at the start: the model must be exported, or its configuration be cached"
        fix = "Export it with optimum-cli, or look the configuration up in the hub's cache."
        yield info("optimum-needs-export", case.setting("model"), why, fix)


def front_ends(case: CheckContext) -> Iterator[Finding]:
    """Several processes on one engine, by a mechanism of vLLM's that is inside it and moves with its versions."""
    if case.config.front_ends == 1:
        return
    setting, fix = case.setting("front_ends"), "Leave it out, or set it to 1."
    if case.vllm is not None and not case.vllm.startswith("0.16."):
        why = f"several front ends on one engine are known of vLLM 0.16 only, and this is {case.vllm}"
        yield error("front-ends", setting, why, fix)
    parallel = case.draft.args.get("data_parallel_size")
    if isinstance(parallel, int) and parallel > 1:
        yield error("front-ends", setting, "it does not go with data parallelism", fix)


START: Final = (
    positive,
    length_of_model,
    bucket_coverage,
    framework,
    model_type,
    scheduler,
    front_ends,
    optimum_compiles_nothing,
)
