"""Sequence lengths that graphs are compiled for (NxDI, modules/autobucketing.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any


def powers(shortest: int, longest: int) -> list[int]:
    if shortest == longest:
        return [longest]
    return [2**i for i in range(int(log2(shortest)), round(log2(longest)))] + [longest]


def context_buckets(config: Mapping[str, Any]) -> list[int]:
    """:raises TypeError: context buckets with prefix caching, without `prefix_buckets`."""
    longest = config["max_context_length"]
    if not config["enable_bucketing"]:
        return [longest]
    given = config["context_encoding_buckets"]
    if given is None:
        return powers(512 if config["is_prefix_caching"] else 128, longest)
    if config["is_prefix_caching"] and config["prefix_buckets"] is None:
        raise TypeError("can only concatenate list (not 'NoneType') to list: prefix_buckets")
    return list(given)


def token_buckets(config: Mapping[str, Any]) -> list[int]:
    longest = config["max_length"]
    if not config["enable_bucketing"]:
        return [longest]
    given = config["token_generation_buckets"]
    return powers(256 if config["is_prefix_caching"] else 128, longest) if given is None else list(given)


def bucket_for(length: int, ahead: int, buckets: Sequence[int], graph: str) -> int:
    """The bucket for an input of `length` tokens and `ahead` speculated ones.

    :raises ValueError: none is large enough. In the engine this is its end: nothing catches it.
    """
    for bucket in buckets:
        if length + ahead < bucket:
            return bucket
    if length + ahead == buckets[-1]:
        return buckets[-1]
    raise ValueError(f"Input len {length} exceeds largest bucket ({buckets[-1]}) for {graph}")
