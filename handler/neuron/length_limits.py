"""The longest prompt and sequence that a plan's compiled graphs can hold. A longer one ends NxD Inference's engine.

An input that fits into no bucket raises in the engine's process, and nothing catches it (aws-neuron/
neuronx-distributed-inference, models/model_wrapper.py). vLLM itself checks only max_model_len and the
plugin's max_prompt_length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from handler.json_value import Json
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
    keys, prompt = _neuron_config(plan)
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


def _neuron_config(plan: EnginePlan) -> tuple[Mapping[str, Json], int | None]:
    """The NeuronConfig keys, and max_prompt_length. On the fork the override is an engine argument."""
    additional = plan.engine_args.get("additional_config")
    section: Mapping[str, Json] = additional if isinstance(additional, dict) else plan.engine_args
    keys = section.get("override_neuron_config")
    if not isinstance(keys, dict):
        return {}, _number(section.get("max_prompt_length"))
    text = keys.get("text_neuron_config")
    return text if isinstance(text, dict) else keys, _number(section.get("max_prompt_length"))


def _speculated(plan: EnginePlan, keys: Mapping[str, Json]) -> int:
    speculation = plan.engine_args.get("speculative_config")
    given = speculation.get("num_speculative_tokens") if isinstance(speculation, dict) else None
    given = given or plan.engine_args.get("num_speculative_tokens")
    return max(_number(given) or 0, _number(keys.get("speculation_length")) or 0)


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _largest(value: Json) -> int | None:
    numbers = [number for item in value if (number := _number(item))] if isinstance(value, list) else []
    return max(numbers) if numbers else None


def _least(values: list[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
