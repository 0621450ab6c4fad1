"""Writes the prefill of the native plugin: tokens in a step, and prefix caching, which needs segments.

A step that takes the whole length is single-shot prefill. A smaller one is a segment, of one of five sizes.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/utils/bucket_utils.py (resolve_segmented_prefill_config) and
vllm_neuron/vllm/worker/neuron_model_runner.py (NeuronModelRunner.__init__).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handler.config.fields import native_key
from handler.json_value import Json, whole_numbers
from handler.neuron.lines.plan_draft import PlanDraft

SEGMENT_SIZES: Final = (512, 1024, 2048, 4096, 8192)
# vLLM's own number of tokens in a step.
DEFAULT_SEGMENT: Final = 2048
LONGEST_SINGLE_SHOT: Final = 16_384
# The first of the plugin's own buckets of a prefill in one step.
SHORTEST_BUCKET: Final = 128
TOKENS: Final = "max_num_batched_tokens"
SEGMENTS: Final = "kv_segment_size_buckets"
PREFILL_BUCKETS: Final = native_key("context_encoding_buckets")
DECODE_BUCKETS: Final = native_key("token_generation_buckets")
PACKED: Final = "fp8_packed_kv"
CACHE_DTYPE: Final = "kv_cache_dtype"


def spell_prefill(draft: PlanDraft) -> None:
    """Sets the tokens of a step and prefix caching, unless they are given. Both are always in the plan.

    With vLLM's own defaults, prefix caching is on and a length of up to 2048 tokens has no segments, on which the
    plugin does not start.
    """
    config, length = draft.config, draft.number("max_model_len")
    draft.copy("enable_prefix_caching", "enable_chunked_prefill")
    if length is None:
        return
    if draft.args.get(TOKENS) is None:
        tokens, why = _tokens(draft, length)
        draft.complete(TOKENS, tokens, why)
    segmented = (draft.number(TOKENS) or length) < length
    if draft.args.get("enable_prefix_caching") is None:
        why = "prefill has segments" if segmented else "prefix caching needs segments, and prefill has none"
        draft.complete("enable_prefix_caching", segmented, why)
    dtype = str(draft.args.get(CACHE_DTYPE) or "auto")
    if config.kv_cache_quant and dtype == "auto":
        draft.args[CACHE_DTYPE] = dtype = "fp8"
    elif config.kv_cache_quant is not None and dtype != "auto" and config.kv_cache_quant != dtype.startswith("fp8"):
        draft.conflict(CACHE_DTYPE, dtype, "kv_cache_quant", config.kv_cache_quant)
    if segmented and PACKED not in draft.raw and dtype.startswith("fp8"):
        draft.override[PACKED] = True
        why = "segments read an FP8 cache in its packed layout only"
        draft.inform("completed", PACKED, f"{why}; the plan sets {PACKED} to true", "Set it to choose yourself.")


def _tokens(draft: PlanDraft, length: int) -> tuple[int, str]:
    """The tokens of a step, and the reason. vLLM wants at least one for each sequence."""
    config, sequences = draft.config, draft.number("max_num_seqs") or 1
    whole = max(length, sequences)
    segments = whole_numbers(draft.raw.get(SEGMENTS))
    buckets = whole_numbers(config.context_encoding_buckets or draft.raw.get(PREFILL_BUCKETS))
    if segments:
        return segments[0], f"the scheduler does not read {SEGMENTS}"
    if buckets:
        last = buckets[-1]
        return (whole if last == length else last), "the scheduler must not exceed the largest prefill bucket"
    requested = config.enable_prefix_caching is True or config.enable_chunked_prefill is True
    fitting = [size for size in SEGMENT_SIZES if sequences <= size < length and (requested or size >= DEFAULT_SEGMENT)]
    if config.enable_chunked_prefill is False or not fitting:
        return whole, "the whole length is prefilled in one step"
    nearest = min(fitting, key=lambda size: abs(size - DEFAULT_SEGMENT))
    return nearest, "longer prompts are prefilled in segments"


def powers(first: int, last: int) -> tuple[int, ...]:
    """Powers of two from `first` on, below `last`, and `last`."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= 2
    return (*sizes, last)


def segments(keys: Mapping[str, Json], args: Mapping[str, Json], length: int) -> Sequence[int]:
    """The sizes of a prefill's segments, in tokens. Empty: one step computes it."""
    tokens = _step(args, length)
    return whole_numbers(keys.get(SEGMENTS)) or ([tokens] if tokens < length else [])


def prefill_sizes(keys: Mapping[str, Json], args: Mapping[str, Json], length: int) -> Sequence[int]:
    """The prefills that the plugin compiles, in tokens."""
    given = segments(keys, args, length)[-1:] or whole_numbers(keys.get(PREFILL_BUCKETS))
    return given or powers(SHORTEST_BUCKET, _step(args, length))


def _step(args: Mapping[str, Json], length: int) -> int:
    tokens = args.get(TOKENS)
    return min(tokens, length) if isinstance(tokens, int) else length
