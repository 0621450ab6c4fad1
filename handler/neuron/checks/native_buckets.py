"""Checks the native plugin's buckets, and where keys are in `additional_config`.

Source: vLLM Neuron, "Configuration options".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.json_value import Json
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.neuron_config.native_keys import DECODE_STEP, SEGMENT_SIZES

DEFAULT_BLOCK: Final = 32
SECTIONS: Final = ("neuron_config", "vision_neuron_config")
LANGUAGE_ONLY: Final = "mm_language_model_only"


def _numbers(value: Json) -> list[int]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, int) and not isinstance(item, bool)]


def segments(context: CheckContext) -> Iterator[Finding]:
    sizes = _numbers(context.draft.override.get("kv_segment_size_buckets"))
    block = max(context.draft.number("block_size") or DEFAULT_BLOCK, 1)
    wrong = [size for size in sizes if size not in SEGMENT_SIZES or size % block]
    if wrong:
        allowed = ", ".join(str(size) for size in SEGMENT_SIZES)
        why = f"{wrong[0]} is not allowed: a segment size is one of {allowed}, and a multiple of block_size ({block})"
        yield error("segment-sizes", context.key("kv_segment_size_buckets"), why, "Use sizes from that list.")


def decode_lengths(context: CheckContext) -> Iterator[Finding]:
    lengths = _numbers(context.draft.override.get("decode_context_length_buckets"))
    longest = context.draft.number("max_model_len")
    if not lengths or longest is None:
        return
    name = "token_generation_buckets" if context.config.token_generation_buckets else "decode_context_length_buckets"
    if lengths != sorted(set(lengths)) or lengths[-1] >= longest or any(one % DECODE_STEP for one in lengths):
        why = f"decode buckets must ascend, be multiples of {DECODE_STEP} and be below max_model_len ({longest})"
        yield error("decode-lengths", context.key(name), why, "Change the buckets that are not.")


def largest_buckets(context: CheckContext) -> Iterator[Finding]:
    """The largest bucket must equal the most that the scheduler may ask for."""
    for key, name in (("num_seqs_buckets", "max_num_seqs"), ("num_batched_tokens_buckets", "max_num_batched_tokens")):
        buckets, limit = _numbers(context.draft.override.get(key)), context.draft.number(name)
        if buckets and limit is not None and max(buckets) != limit:
            why = f"the largest bucket of {key} is {max(buckets)}, but {name} is {limit}"
            yield error(
                "largest-bucket",
                context.key(key),
                why,
                f"Make the largest bucket {limit}, or set {name} to {max(buckets)}.",
            )


def mxfp(context: CheckContext) -> Iterator[Finding]:
    """MXFP4 works for gpt-oss on trn3 only."""
    if context.draft.override.get("quantization") != "mxfp4":
        return
    other = context.instance is not None and context.instance.platform != "trn3"
    model = context.facts is not None and context.facts.model_type != "gpt_oss"
    if other or model:
        why = "MXFP4 weights work for gpt-oss on trn3 only; the worker rejects them otherwise"
        yield error("mxfp4", context.key("quantization"), why, "Remove quantization.")


def language_only(context: CheckContext) -> Iterator[Finding]:
    """A switch that the plugin reads only at the top level of `additional_config`."""
    for section in SECTIONS:
        content = context.draft.additional.get(section)
        if isinstance(content, dict) and LANGUAGE_ONLY in content:
            why = f"the plugin silently ignores {LANGUAGE_ONLY} inside {section}"
            fix = "Move it to the top level of additional_config."
            yield error("language-only-nested", f"{section}.{LANGUAGE_ONLY}", why, fix)


def native(context: CheckContext) -> Iterator[Finding]:
    """Runs these checks on the native plugin only."""
    if context.line.keys is ConfigKeys.NATIVE:
        for check in (segments, decode_lengths, largest_buckets, mxfp, language_only):
            yield from check(context)


NATIVE: Final = (native,)
