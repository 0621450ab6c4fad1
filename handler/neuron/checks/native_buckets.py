"""Checks the native plugin's buckets: what the scheduler may ask for must be what the runner has compiled.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/utils/bucket_utils.py (its validators, in the order of the runner).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.json_value import whole_numbers
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.blocks import NATIVE_BLOCK
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.native.native_lines import SEQUENCE_BUCKETS
from handler.neuron.lines.native.native_prefill import (
    DECODE_BUCKETS,
    LONGEST_SINGLE_SHOT,
    PREFILL_BUCKETS,
    SEGMENT_SIZES,
    SEGMENTS,
    TOKENS,
    prefill_sizes,
)
from handler.neuron.neuron_config.keys import DECODE_STEP

SIZES: Final = ", ".join(map(str, SEGMENT_SIZES))


def ascending(context: CheckContext) -> Iterator[Finding]:
    """Every list of buckets has whole numbers above 0, each larger than the one before."""
    for key in (PREFILL_BUCKETS, SEQUENCE_BUCKETS, SEGMENTS, DECODE_BUCKETS):
        given = context.draft.override.get(key)
        sizes = whole_numbers(given)
        if isinstance(given, list) and (not sizes or len(sizes) < len(given) or not _ascend(sizes)):
            why = f"{str(given)[:60]} must be whole numbers above 0 in ascending order, and at least one"
            yield error("bucket-order", context.key(key), why, "Sort the buckets, and remove the others.")


def _ascend(sizes: list[int]) -> bool:
    return sizes[0] > 0 and all(one < other for one, other in itertools.pairwise(sizes))


def segments(context: CheckContext) -> Iterator[Finding]:
    """A segment is one size, and the scheduler's step too."""
    sizes, tokens = whole_numbers(context.draft.override.get(SEGMENTS)), context.draft.number(TOKENS)
    block = max(context.draft.number("block_size") or NATIVE_BLOCK, 1)
    wrong = [size for size in sizes if size not in SEGMENT_SIZES or size % block]
    if wrong:
        why = f"{wrong[0]} is not allowed: a segment size is one of {SIZES}, and a multiple of block_size ({block})"
        yield error("segment-sizes", context.key(SEGMENTS), why, "Use a size from that list.")
    elif len(sizes) > 1:
        why = f"the plugin has one segment size, not {len(sizes)}"
        yield error("segment-sizes", context.key(SEGMENTS), why, f"Use [{sizes[-1]}].")
    elif sizes and tokens is not None and min(tokens, context.draft.number("max_model_len") or tokens) > sizes[0]:
        why = f"the scheduler takes {TOKENS} ({tokens}) in a step, and the compiled segment has {sizes[0]}"
        yield error("segment-tokens", TOKENS, why, f"Set {TOKENS} to {sizes[0]}, or remove it.")


def prefill(context: CheckContext) -> Iterator[Finding]:
    """Single-shot prefill, or segments of one size."""
    draft = context.draft
    tokens, length = draft.number(TOKENS), draft.number("max_model_len")
    if tokens is None or length is None:
        return
    setting, given = TOKENS, whole_numbers(draft.override.get(PREFILL_BUCKETS))
    own = whole_numbers(draft.override.get(SEGMENTS))
    if tokens < (draft.number("max_num_seqs") or 1):
        why = f"vLLM does not start with fewer tokens in a step ({tokens}) than max_num_seqs"
        where = setting if TOKENS in draft.config.engine_args else "max_num_seqs"
        yield error("tokens-below-sequences", where, why, f"Raise {TOKENS}, or lower max_num_seqs.")
    if tokens < length and draft.args.get("enable_chunked_prefill") is False:
        why = f"{TOKENS} ({tokens}) is below max_model_len ({length}), which needs segments (chunked prefill)"
        fix = f"Set {TOKENS} to {length}, or remove enable_chunked_prefill."
        yield error("single-shot", "enable_chunked_prefill", why, fix)
    if not own and tokens >= length:
        yield from _single_shot(context, length)
    elif not own and tokens not in SEGMENT_SIZES:
        why = f"{tokens} tokens in a step are below max_model_len ({length}), and a segment has {SIZES} tokens"
        where = context.key(PREFILL_BUCKETS) if given and TOKENS not in draft.config.engine_args else setting
        yield error("segment-sizes", where, why, f"Use one of them, or {length}.")
    segment = own or ([tokens] if tokens < length else [])
    if given and segment and given != segment:
        why = f"prefill has segments of {segment[0]} tokens, so its buckets must be [{segment[0]}], not {given}"
        fix = f"Remove it, or make the largest bucket max_model_len ({length}) for prefill in one step."
        yield error("prefill-buckets", context.key(PREFILL_BUCKETS), why, fix)
    elif given and given[-1] != min(tokens, length):
        yield _largest(context, PREFILL_BUCKETS, given[-1], "max_model_len" if tokens >= length else TOKENS)


def _single_shot(context: CheckContext, length: int) -> Iterator[Finding]:
    if length > LONGEST_SINGLE_SHOT:
        chunked = context.draft.args.get("enable_chunked_prefill") is False and TOKENS not in context.config.engine_args
        setting = "enable_chunked_prefill" if chunked else TOKENS
        why = f"max_model_len is {length}, and one step takes {LONGEST_SINGLE_SHOT} tokens at most"
        yield error("single-shot", setting, why, f"Set {TOKENS} to one of {SIZES}, with chunked prefill.")
    if context.draft.args.get("enable_prefix_caching") is True:
        why = "prefix caching needs segments, and prefill takes the whole length in one step"
        fix = f"Set {TOKENS} to one of {SIZES} below max_model_len ({length}), or turn prefix caching off."
        yield error("prefix-caching-single-shot", "enable_prefix_caching", why, fix)


def prefill_ranks(context: CheckContext) -> Iterator[Finding]:
    """Every model shares the tokens of a prefill among the ranks (vllm_neuron/model/llama3/model.py, `forward`)."""
    draft = context.draft
    tokens, length = draft.number(TOKENS), draft.number("max_model_len")
    ranks = draft.number("tensor_parallel_size") or 1
    if tokens is None or length is None or min(tokens, length, ranks) < 1:
        return
    sizes = prefill_sizes(draft.override, draft.args, length)
    wrong = next((size for size in sizes if size > 0 and (size <= ranks or size % ranks)), None)
    if wrong is not None:
        typed = next((key for key in (SEGMENTS, PREFILL_BUCKETS) if whole_numbers(draft.override.get(key))), None)
        multiple = ranks * max(2, -(-wrong // ranks))
        why = f"a prefill of {wrong} tokens does not divide by the {ranks} ranks of tensor_parallel_size"
        why = f"{why}, with 2 tokens or more for each"
        where, divisor = "max_model_len", f"a tensor_parallel_size that divides {wrong}."
        fix = f"Use {multiple} tokens, or {divisor}"
        if typed:
            where = context.key(typed)
        elif tokens < length:  # a segment has one of five sizes
            where, fix = TOKENS, f"Use {divisor}"
        elif wrong != length:  # one of the plugin's own buckets
            where, fix = context.key(PREFILL_BUCKETS), f"Give multiples of {ranks} up to max_model_len, or {divisor}"
        yield error("prefill-ranks", where, why, fix)


def decode_lengths(context: CheckContext) -> Iterator[Finding]:
    lengths = whole_numbers(context.draft.override.get(DECODE_BUCKETS))
    longest = context.draft.number("max_model_len")
    if not lengths or longest is None:
        return
    if max(lengths) >= longest or any(one % DECODE_STEP for one in lengths):
        why = f"decode buckets must be multiples of {DECODE_STEP} and be below max_model_len ({longest})"
        yield error("decode-lengths", context.key(DECODE_BUCKETS), why, "Change the buckets that are not.")


def sequences(context: CheckContext) -> Iterator[Finding]:
    """The largest batch that is compiled must equal the most that the scheduler may ask for."""
    buckets, limit = whole_numbers(context.draft.override.get(SEQUENCE_BUCKETS)), context.draft.number("max_num_seqs")
    if buckets and limit is not None and buckets[-1] != limit:
        yield _largest(context, SEQUENCE_BUCKETS, buckets[-1], "max_num_seqs")


def _largest(context: CheckContext, key: str, largest: int, name: str) -> Finding:
    limit = context.draft.number(name)
    why = f"the largest bucket of {key} is {largest}, but {name} is {limit}"
    fix = f"Make the largest bucket {limit}, or set {name} to {largest}."
    return error("largest-bucket", context.key(key), why, fix)


def native_buckets(context: CheckContext) -> Iterator[Finding]:
    """Runs these checks on the native plugin only."""
    if context.line.keys is ConfigKeys.NATIVE:
        for check in (ascending, segments, prefill, prefill_ranks, decode_lengths, sequences):
            yield from check(context)


BUCKETS: Final = (native_buckets,)
