"""The runner's buckets: what it compiles, or why it does not start (vllm_neuron/utils/bucket_utils.py).

Sources of this folder: the native plugin 0.24.0.1.1.0, as public forks hold it (vllm_neuron/vllm/platform.py,
vllm_neuron/vllm/worker/neuron_model_runner.py and neuron_worker.py, vllm_neuron/model/neuron_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neuron_stand_in.native.configuration import NativeConfiguration

SEGMENTS = (512, 1024, 2048, 4096, 8192)
SINGLE_SHOT = 16 * 1024
TILE = 128


@dataclass(frozen=True, slots=True)
class CompiledBuckets:
    """What is compiled. `segment` is None where prefill takes a whole prompt at once."""

    tokens: tuple[int, ...]
    sequences: tuple[int, ...]
    decode: tuple[int, ...]
    segment: int | None


def compiled_buckets(asked: NativeConfiguration) -> CompiledBuckets:
    """:raises ValueError: the runner does not start with them."""
    given = asked.neuron
    most = min(asked.max_num_batched_tokens, asked.max_model_len)
    segment = None if "kv_segment_size_buckets" in given else _segment_of(most, asked.max_model_len)
    tokens = _listed(given, "num_batched_tokens_buckets", most)
    if "kv_segment_size_buckets" in given:
        sizes = _ascending(given["kv_segment_size_buckets"], "kv_segment_size_buckets")
        if len(sizes) != 1 or sizes[0] not in SEGMENTS or sizes[0] % asked.block_size:
            raise ValueError(f"one segment size of {SEGMENTS} in blocks of {asked.block_size}, not {sizes}")
        segment = sizes[0]
    if segment is not None:
        if tokens is not None and tokens != (segment,):
            raise ValueError(f"num_batched_tokens_buckets {tokens} and a segment of {segment}")
        tokens = (segment,)
    elif asked.prefix_caching:
        raise ValueError("prefix caching requires segmented prefill")
    tokens, ranks = tokens or _powers(128, most), asked.tensor_parallel_size
    if any(size <= ranks or size % ranks for size in tokens):
        raise ValueError(f"the {ranks} ranks share the tokens of each prefill, and cannot share {tokens}")
    sequences = _listed(given, "num_seqs_buckets", asked.max_num_seqs)
    decode: tuple[int, ...] = ()
    if "decode_context_length_buckets" in given:
        decode = _ascending(given["decode_context_length_buckets"], "decode_context_length_buckets")
        if decode[-1] >= asked.max_model_len or any(length % TILE for length in decode):
            raise ValueError(f"decode buckets {decode} below {asked.max_model_len}, in steps of {TILE}")
    return CompiledBuckets(tokens, sequences or _powers(1, asked.max_num_seqs), decode, segment)


def padded(count: int, buckets: tuple[int, ...]) -> int:
    """The bucket that a step computes for so many tokens or sequences; the largest where none holds them."""
    return next((bucket for bucket in buckets if bucket >= count), buckets[-1])


def _segment_of(most: int, length: int) -> int | None:
    if most >= length:
        if length > SINGLE_SHOT:
            raise ValueError(f"single-shot prefill of {length} tokens, over {SINGLE_SHOT}")
        return None
    if most not in SEGMENTS:
        raise ValueError(f"{most} batched tokens, and the segments are {SEGMENTS}")
    return most


def _listed(given: Mapping[str, Any], name: str, last: int) -> tuple[int, ...] | None:
    if name not in given:
        return None
    buckets = _ascending(given[name], name)
    if buckets[-1] != last:
        raise ValueError(f"the last of {name} must be {last}")
    return buckets


def _ascending(given: Any, name: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not given or not all(type(one) is int and one > 0 for one in given):
        raise ValueError(f"{name} must be a list of whole numbers, not {given!r}")
    if any(one >= other for one, other in pairwise(given)):
        raise ValueError(f"{name} must ascend")
    return tuple(given)


def _powers(first: int, last: int) -> tuple[int, ...]:
    sizes = []
    while first < last:
        sizes.append(first)
        first *= 2
    return (*sizes, last)
