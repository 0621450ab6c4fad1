from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import LLAMA_8B, LLAMA_405B, published

from handler.neuron.memory.rank_weights import Heads, rank_weights, shard_heads


@pytest.mark.parametrize(
    ("heads", "kv", "degree", "expected"),
    [
        (32, 8, 8, Heads(32, 8, 1)),
        (32, 8, 2, Heads(32, 8, 4)),
        (32, 8, 32, Heads(32, 32, 1)),  # replicated: one on each rank
        (64, 8, 12, Heads(72, 72, 6)),  # neither divides: expanded to as many as the padded query heads
        (28, 4, 32, Heads(32, 32, 1)),
        (40, 8, 64, Heads(64, 64, 1)),
        (32, 32, 24, Heads(48, 48, 2)),  # multi-head attention is padded alike
        (16, 1, 4, Heads(16, 4, 1)),
    ],
)
def test_heads_are_padded_and_replicated_as_nxd_inference_does(
    heads: int, kv: int, degree: int, expected: Heads
) -> None:
    assert shard_heads(heads, kv, degree) == expected


def total(model: str, degree: int) -> int:
    rank = rank_weights(published(model), degree)
    return rank.attention + rank.mlp + rank.embeddings + rank.replicated


def test_by_hand_8b_over_8() -> None:
    """Per layer: q and o 4096 x 512 each, one KV head of 128 for k and v, gate, up and down 4096 x 1792."""
    layer = 2 * 4096 * 512 + 2 * 4096 * 128 + 3 * 4096 * 1792
    norms = (2 * 32 + 1) * 4096
    assert total(LLAMA_8B, 8) == 32 * layer + norms + 2 * 128256 * 512


def test_by_hand_405b_over_64_with_replicated_kv_heads() -> None:
    layer = 2 * 16384 * 256 + 2 * 16384 * 128 + 3 * 16384 * 832
    norms = (2 * 126 + 1) * 16384
    assert total(LLAMA_405B, 64) == 126 * layer + norms + 2 * 128256 * 256


@given(st.integers(1, 256), st.integers(1, 64), st.integers(1, 256))
def test_every_rank_has_the_same_number_of_heads(heads: int, kv: int, degree: int) -> None:
    found = shard_heads(heads, kv, degree)
    assert found.query % degree == 0
    assert found.kv_per_rank * degree >= min(kv, found.kv)
    assert found.kv_per_rank >= 1
