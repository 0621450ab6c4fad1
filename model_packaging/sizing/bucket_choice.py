"""Chooses the buckets with the least computed tokens: an exact dynamic program.

The cost of a bucket is its size, for each input that falls into it. The best end of the second to last bucket never
moves down when the last one grows (the quadrangle inequality), so each layer is solved by divide and conquer: with m
candidates and k buckets in k * m * log(m) steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf


def best_buckets(
    counts: Mapping[int, int], count: int, longest: int, rounded: Callable[[int], int] = int
) -> tuple[int, ...]:
    """Returns at most `count` buckets, ascending, that compute the fewest tokens for inputs of these lengths.

    :param counts: inputs by the smallest size that holds them. Sizes above `longest` count as `longest`.
    :param longest: the last bucket, whatever the lengths are: a longer input may come.
    :param rounded: the smallest allowed bucket that holds a size.
    """
    inputs: dict[int, int] = {}
    for size, number in counts.items():
        bucket = min(rounded(size), longest)
        inputs[bucket] = inputs.get(bucket, 0) + number
    inputs.setdefault(longest, 0)
    sizes = sorted(inputs)
    before = [0, *accumulate(inputs[size] for size in sizes)]
    # cost[i]: the fewest tokens for the first i sizes, when the last bucket of them is sizes[i - 1].
    cost: list[float] = [0.0, *(sizes[at] * before[at + 1] for at in range(len(sizes)))]
    layers: list[list[int]] = []
    for _ in range(min(count, len(sizes)) - 1):
        cost, starts = _layer(cost, sizes, before)
        layers.append(starts)
    chosen, at = [], len(sizes)
    for starts in (*reversed(layers), [0] * (len(sizes) + 1)):
        if at:
            chosen.append(sizes[at - 1])
            at = starts[at]
    return tuple(reversed(chosen))


def computed_tokens(counts: Mapping[int, int], buckets: Sequence[int]) -> int:
    """Returns the tokens that inputs of these sizes compute. A size above the last bucket counts as the last."""
    return sum(
        number * next((bucket for bucket in buckets if size <= bucket), buckets[-1]) for size, number in counts.items()
    )


def _layer(cost: Sequence[float], sizes: Sequence[int], before: Sequence[int]) -> tuple[list[float], list[int]]:
    """One more bucket: for each end, the least cost, and where the last bucket starts."""
    best, starts = [inf] * len(cost), [0] * len(cost)
    best[0] = 0.0
    todo = [(1, len(sizes), 0, len(sizes) - 1)]
    while todo:
        low, high, first, last = todo.pop()
        if low > high:
            continue
        end = (low + high) // 2
        for start in range(first, min(last, end - 1) + 1):
            total = cost[start] + sizes[end - 1] * (before[end] - before[start])
            if total < best[end]:
                best[end], starts[end] = total, start
        todo += [(low, end - 1, first, starts[end]), (end + 1, high, starts[end], last)]
    return best, starts
