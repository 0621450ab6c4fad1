"""The chosen buckets are the optimum: no other buckets compute fewer tokens."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from model_packaging.sizing.bucket_choice import best_buckets, computed_tokens


def by_brute_force(counts: dict[int, int], count: int, longest: int, step: int) -> int:
    sizes = range(step, longest, step)
    sets = (chosen for number in range(count) for chosen in combinations(sizes, number))
    return min(computed_tokens(counts, (*chosen, longest)) for chosen in sets)


@pytest.mark.parametrize("seed", range(200))
def test_no_other_buckets_compute_fewer_tokens(seed: int) -> None:
    draw = random.Random(seed)
    longest, step, count = draw.randint(4, 16), draw.choice((1, 1, 2, 3)), draw.randint(1, 5)
    counts = {draw.randint(1, longest): draw.randint(0, 9) for _ in range(draw.randint(1, 12))}
    chosen = best_buckets(counts, count, longest, lambda size: -(-size // step) * step)
    assert computed_tokens(counts, chosen) == by_brute_force(counts, count, longest, step)
    assert len(chosen) <= count
    assert chosen[-1] == longest
    assert list(chosen) == sorted(set(chosen))
    assert all(bucket % step == 0 for bucket in chosen[:-1])


def test_a_length_that_never_came_gets_no_bucket() -> None:
    assert best_buckets({100: 5}, 8, 4096) == (100, 4096)


def test_lengths_above_the_last_bucket_count_as_the_last() -> None:
    assert best_buckets({5000: 3, 10: 1}, 2, 4096) == (10, 4096)


def test_without_lengths_only_the_last_bucket_stays() -> None:
    assert best_buckets({}, 3, 2048) == (2048,)
