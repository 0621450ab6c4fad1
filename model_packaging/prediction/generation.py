"""Predicts one load on one engine: time to the first token, time per token, tokens a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.buckets.padding import DECODE, padded_tokens
from handler.neuron.hardware.chip_rates import REQUEST_SECONDS
from model_packaging.prediction.roofline import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLoad:
    """Requests that run at the same time. Lengths are in tokens.

    :param batch: requests at a time.
    """

    batch: int
    prompt: int
    output: int

    def __post_init__(self) -> None:
        for name, value in (("--batch", self.batch), ("--input-tokens", self.prompt), ("--output-tokens", self.output)):
            if not 1 <= value <= 10**7:
                raise SettingError(name, f"{value} is out of range", "Give 1 or more.")


@dataclass(frozen=True, slots=True)
class GenerationRates:
    """The prediction. Times are in seconds.

    :param first_token: of a prompt that waits for no other one.
    :param between_tokens: of the step in the middle of the output.
    :param tokens_per_second: generated tokens of all sequences.
    :param request_seconds: of a whole request. It waits once for the prefill of each other sequence.
    """

    first_token: float
    between_tokens: float
    tokens_per_second: float
    request_seconds: float

    def document(self) -> dict[str, Json]:
        return {
            "first_token_seconds": round(self.first_token, 5),
            "between_tokens_seconds": round(self.between_tokens, 6),
            "tokens_per_second": round(self.tokens_per_second, 2),
            "request_seconds": round(self.request_seconds, 3),
        }


def generation_rates(roofline: Roofline, buckets: CompiledBuckets, load: GenerationLoad) -> GenerationRates:
    """Predicts a steady load: whenever a request ends, the next one is prefilled while the others wait.

    :param buckets: what prompts, contexts and batches are padded to.
    """
    batch = buckets.batch(load.batch)
    prefill = prefill_seconds(roofline, buckets, load.prompt)
    middle = buckets.decode_tokens(load.prompt + max(load.output // 2, 1))
    decode = sum(
        tokens.computed // tokens.bucket * roofline.decode(batch, tokens.bucket).total
        for tokens in padded_tokens(buckets, load.prompt, load.output)
        if tokens.phase == DECODE
    )
    seconds = REQUEST_SECONDS + load.batch * prefill + decode
    return GenerationRates(
        first_token=REQUEST_SECONDS + prefill,
        between_tokens=roofline.decode(batch, middle).total,
        tokens_per_second=load.batch * load.output / seconds,
        request_seconds=seconds,
    )


def prefill_seconds(roofline: Roofline, buckets: CompiledBuckets, prompt: int) -> float:
    """The prefill of one prompt: one bucket, or its segments one after the other."""
    computed = buckets.prefill_tokens(prompt)
    if not buckets.segmented:
        return roofline.prefill(computed).total
    size = buckets.prefill[0]
    return sum(roofline.prefill(size, context=before).total for before in range(0, computed, size))


def power_buckets(length: int, batch: int, prefill: Sequence[int] = (), decode: Sequence[int] = ()) -> CompiledBuckets:
    """The usual buckets: powers of two up to the length, and one batch. Each list that is given replaces its own."""
    from handler.neuron.buckets.compiled_buckets import powers

    usual = powers(128, length)
    return CompiledBuckets(tuple(prefill) or usual, tuple(decode) or usual, (batch,))
