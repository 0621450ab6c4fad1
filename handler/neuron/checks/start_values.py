"""Checks values on which a start would fail, or which would silently be replaced."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE, NXD_INFERENCE, OPTIMUM_NEURON
from handler.config.finding import Finding
from handler.json_value import mapping
from handler.neuron.checks.check_context import CheckContext, error, warning
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.line_registry import LINE_OF_FRAMEWORK
from handler.neuron.lines.nxdi import NXDI_016, SCHEDULER
from handler.neuron.lines.plan_draft import DEFAULT_SEQUENCES

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
# Arguments of vLLM whose product is the number of processes. Not every version refuses 0; PyTorch does when they meet.
DEGREES: Final = (
    *("pipeline_parallel_size", "data_parallel_size", "nnodes"),
    *("decode_context_parallel_size", "prefill_context_parallel_size"),
)
# vLLM with transformers 4, which reads rope_scaling before hf_overrides set an object.
TRANSFORMERS_4: Final = ("0.13.", "0.16.")
ALLOW_LONG: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
NUMERIC: Final = (
    *("NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", "NEURON_RT_EXEC_TIMEOUT", "NEURON_RT_IO_RING_CACHE_SIZE"),
    *("NEURON_RT_NUM_CORES", "NEURON_RT_STOCHASTIC_ROUNDING_SEED", "NEURON_RT_XU_COMPUTE_MAX_QUEUED_REQUESTS"),
    # The plugin reads its switches as numbers, and does not start with `true`.
    *(f"VLLM_NEURON_{name}" for name in ("CPU_MODE", "CPU_COMPILE", "DEBUG_MODE", "DISABLE_NKI_KERNELS")),
    *(f"VLLM_NEURON_SKIP_{name}_WARMUP" for name in ("PREFILL", "DECODE", "PREFILL_DECODE", "ENCODER")),
    *("VLLM_NEURON_FORCE_STATIC_FP8", "VLLM_NEURON_BARRIER_TIMEOUT", "VLLM_NEURON_WORKER_TERMINATION_TIMEOUT"),
    *("NEURON_LIBTORCH_COMPILATION_TIMEOUT", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"),
)
# The tokens in a step if nothing says how many, on a CPU for each rank (vllm/engine/arg_utils.py, 0.16 to 0.32).
VLLM_BUDGET: Final = 2048
# Encoders of vLLM, whose prompts it does not divide (config/model.py, is_chunked_prefill_supported, 0.16 to 0.32).
ENCODER: Final = re.compile(
    "(Bert|Roberta|XLMRoberta|ModernBert|NomicBert|Gte|GteNew)Model|RobertaForMaskedLM|"
    "(Bert|Roberta|XLMRoberta|ModernBert|GteNew)ForSequenceClassification|(Bert|ModernBert)ForTokenClassification"
)
BUCKETS: Final = ("context_encoding_buckets", "token_generation_buckets")
LARGEST_SEED: Final = 2**32 - 1  # numpy.random.seed, which vLLM's set_random_seed calls (0.9.1 to 0.32)


def positive(context: CheckContext) -> Iterator[Finding]:
    """Counts and lengths below 1, and a seed that is none."""
    counts = {name: getattr(context.config, name) for name in POSITIVE}
    for name, value in {**counts, **{name: context.draft.number(name) for name in DEGREES}}.items():
        if value is not None and value < 1:
            yield error("not-positive", name, f"{value} is below 1", "Give 1 or more, or remove it.")
    sequences = context.config.max_num_seqs
    if sequences is not None and sequences < 1:
        replaced = f"the plugin silently replaces it with {DEFAULT_SEQUENCES}" if sequences == 0 else "it is below 1"
        why = f"max_num_seqs is {sequences}: {replaced}"
        yield error("max-num-seqs", "max_num_seqs", why, "Give 1 or more, or remove it.")
    seed = context.draft.number("seed")
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        why = f"{seed} is not from 0 to {LARGEST_SEED}: each worker seeds NumPy with it, and ends"
        yield error("seed", "seed", why, "Correct it, or remove it: vLLM's default is 0.")
    for name in BUCKETS:
        buckets = getattr(context.config, name)
        if buckets is not None and (not buckets or min(buckets) < 1):
            why = "there must be at least one bucket, and each must be 1 token or longer"
            yield error("bucket-not-positive", name, why, "Give lengths above 0, or remove it.")


def length_of_model(context: CheckContext) -> Iterator[Finding]:
    """vLLM does not start with a length that the model was not trained for. Only the NxDI plugin switches that off."""
    length, facts = context.draft.number("max_model_len"), context.facts
    limit = facts and (facts.max_position_embeddings if context.plugin else facts.longest)
    if not limit or length is None or length <= limit:
        return
    setting, why = "max_model_len", f"the model was trained for {limit} tokens, not {length}"
    asked = context.config.engine_args
    overrides = {**mapping(asked.get("hf_overrides"))}
    if (context.vllm or "").startswith(TRANSFORMERS_4) and isinstance(overrides.get("rope_scaling"), dict):
        overrides.pop("rope_scaling")
    longer = "rope_scaling" in asked or "rope" in json.dumps(overrides)
    allowed = context.draft.env.get(ALLOW_LONG, "").strip().lower() in ("1", "true")
    if context.plugin or allowed or longer:
        why = f"{why}, and vLLM does not check it"
        yield warning("length-beyond-model", setting, why, f"Lower it to {limit} or less.")
    else:
        fix = f"Lower it to {limit} or less, or set {ALLOW_LONG} to 1 if the answers stay good."
        yield error("length-beyond-model", setting, f"{why}, and vLLM does not start", fix)


def bucket_coverage(context: CheckContext) -> Iterator[Finding]:
    """A request that is longer than the largest bucket fails (NxDI, autobucketing)."""
    if not context.nxd or not context.values.flag("enable_bucketing"):
        return
    limits = {
        "context_encoding_buckets": ("prompts", context.values.number("max_context_length")),
        "token_generation_buckets": ("sequences", context.values.number("max_length")),
    }
    for key, (what, limit) in limits.items():
        buckets = context.values.numbers(key)
        if buckets and max(buckets) < limit:
            why = f"{what} may have {limit} tokens, but the largest bucket has {max(buckets)}: longer ones are rejected"
            yield warning("bucket-coverage", context.key(key), why, f"Add {limit} to the buckets, or lower the length.")


def framework(context: CheckContext) -> Iterator[Finding]:
    """VLLM_NEURON_FRAMEWORK must name a framework that the line has."""
    named = context.config.neuron_env.get(FRAMEWORK_VARIABLE)
    if named is None:
        return
    line = LINE_OF_FRAMEWORK.get(named, NXDI_016.name)
    has = {"nxdi": NXD_INFERENCE, "fork": context.line.framework, "opti": OPTIMUM_NEURON}.get(context.line.name[:4])
    if named != has:
        why = f"{context.line.name} does not run on {named}"
        fix = f"Remove it. For the plan of a line that has it, set ENDPOINT_LINE={line}."
        yield error("framework-not-in-line", FRAMEWORK_VARIABLE, why, fix)


def numeric_variables(context: CheckContext) -> Iterator[Finding]:
    """Variables whose number the runtime reads. It takes a text for 0, or for its default, without a word."""
    for name in NUMERIC:
        value = context.draft.env.get(name, "0").strip()
        if not value.removeprefix("-").isdecimal():
            yield error("not-a-number", name, f"'{value[:40]}' is not a whole number", "Give a whole number.")


def step(context: CheckContext) -> Iterator[Finding]:
    """A step holds a token of each sequence, and a whole prompt where prompts are not divided. The plugin's scheduler
    replaces the budget once vLLM has compared it (vllm/config/scheduler.py, verify_max_model_len)."""
    draft, name = context.draft, "max_num_batched_tokens"
    if not context.plugin and context.line.name != CPU.name:
        return
    given, sequences = draft.number(name), draft.number("max_num_seqs") or 1
    length = draft.number("max_model_len") or (context.facts.longest if context.facts else None) or 0
    chunked, names = draft.args.get("enable_chunked_prefill"), context.facts.architectures if context.facts else ()
    encoder = chunked is None and not context.plugin and any(ENCODER.fullmatch(each) for each in names[:1])
    whole = context.plugin or chunked is False or encoder
    ranks = (draft.number("tensor_parallel_size") or 1) * (draft.number("pipeline_parallel_size") or 1)
    tokens = given or max(VLLM_BUDGET * (1 if context.plugin else ranks), length if whole else 0)
    if tokens < sequences:
        why = f"vLLM does not start with fewer tokens in a step ({tokens}) than max_num_seqs ({sequences})"
        fix = f"Set {name} to {sequences} or more, or lower max_num_seqs."
        yield error("tokens-below-sequences", name if given else "max_num_seqs", why, fix)
    if context.plugin and given is not None and SCHEDULER not in draft.env:
        why = "the plugin's own scheduler replaces max_num_batched_tokens with 131072"
        yield warning("token-budget-replaced", name, why, "Remove it.")
    if not context.plugin and whole and tokens < length:
        cause = "an encoder's prompts are not divided" if encoder else "without chunked prefill"
        why = f"{cause}: a step of {tokens} tokens must hold a whole prompt, of up to {length}"
        fix = f"Set it to {length}, or {'lower max_model_len' if encoder else 'enable_chunked_prefill to true'}."
        # Unless it is set, the tokenizer or sentence_bert_config.json may have a shorter length (config/model.py).
        finding = warning if encoder and not draft.number("max_model_len") else error
        yield finding("tokens-below-length", name, why, fix)


START: Final = (
    positive,
    length_of_model,
    bucket_coverage,
    framework,
    numeric_variables,
    step,
)
