"""Counts the tokens that one request asks for and computes after padding, by phase and bucket.

Prefill computes a whole bucket (or segments) for a prompt. A decode step reads the keys and values of a whole bucket
for each sequence. The first output token comes from the prefill, each further one from a decode step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from handler.neuron.buckets.compiled_buckets import CompiledBuckets

PREFILL, DECODE = "prefill", "decode"
# The counters on /metrics of both kinds of tokens.
ASKED, COMPUTED = "endpoint_tokens_asked_total", "endpoint_tokens_computed_total"


@dataclass(frozen=True, slots=True)
class PaddedTokens:
    """The tokens of one phase, in one bucket or in all.

    :param asked: tokens of prompts, or tokens of context over all decode steps.
    :param computed: the same after padding.
    """

    phase: str
    bucket: int
    asked: int
    computed: int

    @property
    def padding(self) -> int:
        return self.computed - self.asked


def padded_tokens(buckets: CompiledBuckets, prompt: int, output: int) -> Iterator[PaddedTokens]:
    """The tokens of a request that runs alone. Next to longer sequences, NxD Inference takes their decode bucket."""
    if prompt < 1:
        return
    computed = buckets.prefill_tokens(prompt)
    yield PaddedTokens(PREFILL, buckets.prefill[0] if buckets.segmented else computed, prompt, computed)
    # The steps have contexts of prompt + 1, prompt + 2 ... prompt + output - 1 tokens.
    first, last = prompt + 1, prompt + output - 1
    for bucket in buckets.decode:
        is_last = bucket == buckets.decode[-1]
        until = last if is_last else min(buckets.room(bucket, buckets.decode[-1]), last)
        steps = until - first + 1
        if steps > 0:
            yield PaddedTokens(DECODE, bucket, (first + until) * steps // 2, steps * bucket)
            first = until + 1


def padded_in_all(
    buckets: CompiledBuckets, prompts: Mapping[int, int], contexts: Mapping[int, int]
) -> tuple[PaddedTokens, PaddedTokens]:
    """The tokens of many requests: prefill, then decode.

    :param prompts: requests by the tokens of their prompts.
    :param contexts: decode steps by the tokens of context.
    """
    return (
        PaddedTokens(
            PREFILL,
            0,
            sum(length * count for length, count in prompts.items()),
            sum(buckets.prefill_tokens(length) * count for length, count in prompts.items()),
        ),
        PaddedTokens(
            DECODE,
            0,
            sum(length * count for length, count in contexts.items()),
            sum(buckets.decode_tokens(length) * count for length, count in contexts.items()),
        ),
    )
