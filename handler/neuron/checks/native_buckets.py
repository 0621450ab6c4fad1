"""Rules of the native plugin's buckets and of what sits where in `additional_config` (vLLM Neuron, "Configuration
options")."""

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


def segments(case: CheckContext) -> Iterator[Finding]:
    sizes = _numbers(case.draft.override.get("kv_segment_size_buckets"))
    block = max(case.draft.number("block_size") or DEFAULT_BLOCK, 1)
    wrong = [size for size in sizes if size not in SEGMENT_SIZES or size % block]
    if wrong:
        allowed = ", ".join(str(size) for size in SEGMENT_SIZES)
        why = f"segment sizes are {allowed}, and multiples of the block ({block}), not {wrong[0]}"
        yield error("segment-sizes", case.key("kv_segment_size_buckets"), why, "Use sizes of that list.")


def decode_lengths(case: CheckContext) -> Iterator[Finding]:
    lengths = _numbers(case.draft.override.get("decode_context_length_buckets"))
    longest = case.draft.number("max_model_len")
    if not lengths or longest is None:
        return
    name = "token_generation_buckets" if case.config.token_generation_buckets else "decode_context_length_buckets"
    if lengths != sorted(set(lengths)) or lengths[-1] >= longest or any(one % DECODE_STEP for one in lengths):
        why = f"decode lengths must ascend, be multiples of {DECODE_STEP} and stay below max_model_len ({longest})"
        yield error("decode-lengths", case.key(name), why, "Change those that do not.")


def largest_buckets(case: CheckContext) -> Iterator[Finding]:
    """The largest bucket must equal what the scheduler may ask for."""
    for key, name in (("num_seqs_buckets", "max_num_seqs"), ("num_batched_tokens_buckets", "max_num_batched_tokens")):
        buckets, limit = _numbers(case.draft.override.get(key)), case.draft.number(name)
        if buckets and limit is not None and max(buckets) != limit:
            why = f"the largest of {key} is {max(buckets)}, but {name} is {limit}"
            yield error(
                "largest-bucket", case.key(key), why, f"Make the largest {limit}, or set {name} to {max(buckets)}."
            )


def mxfp(case: CheckContext) -> Iterator[Finding]:
    """MXFP4 is for gpt-oss on trn3."""
    if case.draft.override.get("quantization") != "mxfp4":
        return
    other = case.instance is not None and case.instance.platform != "trn3"
    model = case.facts is not None and case.facts.model_type != "gpt_oss"
    if other or model:
        why = "MXFP4 weights are for gpt-oss on trn3 only: the worker refuses them elsewhere"
        yield error("mxfp4", case.key("quantization"), why, "Leave quantization out.")


def language_only(case: CheckContext) -> Iterator[Finding]:
    """A switch that is read at the top of `additional_config` and nowhere else."""
    for section in SECTIONS:
        content = case.draft.additional.get(section)
        if isinstance(content, dict) and LANGUAGE_ONLY in content:
            why = f"{LANGUAGE_ONLY} inside {section} is ignored in silence"
            fix = "Move it to the top level of additional_config."
            yield error("language-only-nested", f"{section}.{LANGUAGE_ONLY}", why, fix)


def native(case: CheckContext) -> Iterator[Finding]:
    """Everything above, on the native plugin only."""
    if case.line.keys is ConfigKeys.NATIVE:
        for check in (segments, decode_lengths, largest_buckets, mxfp, language_only):
            yield from check(case)


NATIVE: Final = (native,)
