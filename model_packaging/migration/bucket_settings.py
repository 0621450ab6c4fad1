"""Translates buckets and the tokens of a prefill step: the native plugin has other rules for them.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/utils/bucket_utils.py (the largest prefill bucket is the step's tokens,
a segmented prefill has one bucket, decode buckets are multiples of 128 below the length).
"""

from __future__ import annotations

from collections.abc import Sequence

from handler.neuron.lines.native.native_prefill import LONGEST_SINGLE_SHOT, SEGMENT_SIZES
from handler.neuron.neuron_config.keys import DECODE_STEP

PREFILL = "num_batched_tokens_buckets"
DECODE = "decode_context_length_buckets"


def is_segmented(length: int, prefix_caching: object, chunked_prefill: object) -> bool:
    """Whether prompts are prefilled in segments, all of one size."""
    return length > LONGEST_SINGLE_SHOT or prefix_caching is True or chunked_prefill is True


def prefill_buckets(buckets: Sequence[int], length: int) -> tuple[int, ...]:
    """The buckets of a prefill in one step. The largest is the length."""
    return (*sorted({size for size in buckets if 0 < size < length}), length)


def decode_buckets(buckets: Sequence[int], length: int) -> tuple[int, ...]:
    """The decode buckets below the length, which the plugin adds. Empty: the length is the only one."""
    rounded = {-(-size // DECODE_STEP) * DECODE_STEP for size in buckets if size > 0}
    return tuple(sorted(size for size in rounded if size < length))


def tokens_fit(tokens: object, length: int, segmented: bool) -> bool:
    """Whether the plugin starts with this `max_num_batched_tokens`."""
    if not isinstance(tokens, int):
        return False
    return tokens in SEGMENT_SIZES if tokens < length else not segmented
