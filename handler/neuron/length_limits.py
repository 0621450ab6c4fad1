"""The longest prompt and sequence that a plan's compiled graphs can hold. A longer one ends NxD Inference's engine.

An input that fits into no bucket raises in the engine's process, and nothing catches it (aws-neuron/
neuronx-distributed-inference, models/model_wrapper.py). vLLM itself checks only max_model_len and the
plugin's max_prompt_length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from handler.json_value import Json, mapping, whole_number, whole_numbers
from handler.neuron.engine_plan import EnginePlan


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """Limits in tokens; None if vLLM's own max_model_len is the only limit.

    :param prompt: the longest prompt.
    :param sequence: the longest sequence, prompt and output together.
    """

    prompt: int | None = None
    sequence: int | None = None


UNLIMITED: Final = LengthLimits()
BUCKETS: Final = "NEURON_CONTEXT_LENGTH_BUCKETS"


def length_limits(plan: EnginePlan) -> LengthLimits:
    """The limits of a plan's graphs. Speculation needs room for its tokens at the end of a sequence."""
    if not plan.line.startswith(("nxdi", "fork")):
        return UNLIMITED
    keys = plan.nxd_keys
    prompt = _number(mapping(plan.engine_args.get("additional_config")).get("max_prompt_length"))
    longest = _number(plan.engine_args.get("max_model_len"))
    contexts = [_number(keys.get("max_context_length")), prompt]
    sequences = [_number(keys.get("seq_len")), longest]
    if keys.get("enable_bucketing") is not False:
        contexts.append(_largest(keys.get("context_encoding_buckets")))
        sequences.append(_largest(keys.get("token_generation_buckets")))
    # Those of transformers-neuronx are a variable.
    contexts.append(_largest([int(length) for length in plan.env.get(BUCKETS, "").split(",") if length.isdecimal()]))
    sequence = _least(sequences)
    speculated = _speculated(plan, keys)
    if sequence is not None and speculated:
        sequence = max(sequence - speculated, 1)
    return LengthLimits(_least(contexts), sequence)


def _speculated(plan: EnginePlan, keys: Mapping[str, Json]) -> int:
    tokens = mapping(plan.engine_args.get("speculative_config")).get("num_speculative_tokens")
    tokens = tokens or plan.engine_args.get("num_speculative_tokens")
    return max(_number(tokens) or 0, _number(keys.get("speculation_length")) or 0)


def _number(value: Json) -> int | None:
    number = whole_number(value)
    return number if number is not None and number > 0 else None


def _largest(value: Json) -> int | None:
    return max((number for number in whole_numbers(value) if number > 0), default=None)


def _least(values: list[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
