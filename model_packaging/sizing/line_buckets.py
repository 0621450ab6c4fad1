"""Chooses the buckets of a plan for a log's lengths, by the rules of the plan's line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from handler.errors import SettingError
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.lines.native.native_prefill import SEGMENT_SIZES
from handler.neuron.neuron_config.keys import DECODE_STEP
from model_packaging.sizing.bucket_choice import best_buckets, computed_tokens
from model_packaging.sizing.request_log import RequestLengths

# NxD Inference takes any length. With LNC 2, its flash attention takes multiples of 256 (memory_shape._flash).
SHORT_STEP: Final = 32
FLASH_STEP: Final = 256


def choose_buckets(
    now: CompiledBuckets,
    lengths: RequestLengths,
    *,
    flash: bool,
    graphs: int | None = None,
    segment_seconds: Callable[[int], float] | None = None,
) -> CompiledBuckets:
    """Returns buckets with the fewest computed tokens.

    :param now: the plan's buckets. Its lists keep their last entries and, without `graphs`, their number of entries.
    :param flash: prefill buckets above 256 must be multiples of 256.
    :param graphs: the most graphs to compile.
    :param segment_seconds: seconds of a prefill step by its tokens. None: a step costs its tokens.
    :raises SettingError: `graphs` is too few.
    """
    needed = partial(_needed, now.exclusive)
    prompts, contexts = needed(lengths.prompts, now.prefill[-1]), needed(lengths.contexts, now.decode[-1])
    # In milliseconds. A batch is never larger than the largest one.
    running = _needed(False, {one: round(1000 * value) for one, value in lengths.running.items()}, now.batches[-1])
    step = SHORT_STEP if now.exclusive else DECODE_STEP
    short = partial(_prefill_size, step, FLASH_STEP if flash else 0)
    segment = (_segment(now, lengths, segment_seconds),) if now.segmented else ()

    @cache
    def prefill(count: int) -> tuple[int, ...]:
        return segment or best_buckets(prompts, count, now.prefill[-1], short)

    @cache
    def decode(count: int) -> tuple[int, ...]:
        return best_buckets(contexts, count, now.decode[-1], partial(_multiple, step))

    @cache
    def batches(count: int) -> tuple[int, ...]:
        return best_buckets(running, count, now.batches[-1]) if running else now.batches

    def made(prefills: int, decodes: int, sizes: int) -> CompiledBuckets:
        return CompiledBuckets(prefill(prefills), decode(decodes), batches(sizes), now.segmented, now.exclusive)

    if graphs is None:
        return made(len(now.prefill), len(now.decode), len(now.batches))

    def excess(one: CompiledBuckets) -> float:
        """Computed tokens for each one that is asked, of the three kinds together."""
        pairs = [(contexts, one.decode), (running, one.batches), *([] if segment else [(prompts, one.prefill)])]
        return sum(computed_tokens(counts, buckets) / _total(counts) for counts, buckets in pairs if counts)

    splits = [
        made(1 if segment else graphs - decodes * sizes, decodes, sizes)
        for sizes in range(1 if running else len(now.batches), len(now.batches) + 1)
        for decodes in range(1, (graphs - 1) // sizes + 1)
    ]
    if not splits:
        fewest = 1 + (1 if running else len(now.batches))
        raise SettingError("--graphs", f"{graphs} graphs are too few for this plan", f"Give {fewest} or more.")
    return min(splits, key=excess)


def _needed(exclusive: bool, counts: Mapping[int, int], longest: int) -> dict[int, int]:
    """Inputs by the smallest bucket that holds them."""
    sizes: dict[int, int] = {}
    for length, count in counts.items():
        size = min(length + exclusive, longest)
        sizes[size] = sizes.get(size, 0) + count
    return sizes


def _segment(now: CompiledBuckets, lengths: RequestLengths, seconds: Callable[[int], float] | None) -> int:
    """The segment size with the least time for all prompts; the largest of equal ones."""
    cost = seconds or float
    allowed = [size for size in SEGMENT_SIZES if now.batches[-1] <= size < now.decode[-1]]

    def total(size: int) -> tuple[float, int]:
        return sum(-(-prompt // size) * cost(size) * count for prompt, count in lengths.prompts.items()), -size

    return min(allowed, key=total)


def _multiple(step: int, size: int) -> int:
    return -(-size // step) * step


def _prefill_size(step: int, flash: int, size: int) -> int:
    return _multiple(flash if flash and size > flash else step, size)


def _total(counts: Mapping[int, int]) -> int:
    return sum(size * count for size, count in counts.items()) or 1
