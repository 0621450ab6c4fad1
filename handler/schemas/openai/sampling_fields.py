"""The fields that OpenAI's bodies share, with their types and bounds."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from handler.engine.generation.generation import Sampling
from handler.engine.generation.stop_strings import stop_strings
from handler.errors import InvalidField
from handler.schemas.request_fields import Body, check_near_misses, meanings

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Bounds as vLLM checks them (vllm/sampling_params.py, SamplingParams._verify_args).
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class SamplerFields(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI's bodies and the parameters of TGI and LMI have in common."""

    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Int64 | None = None
    stop_token_ids: list[Annotated[int, Meta(ge=0)]] | None = None


class SamplingFields(SamplerFields, frozen=True, kw_only=True):
    """The fields that chat and completion bodies have in common."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    stop: str | list[str] | None = None
    n: Count | None = 1
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    add_special_tokens: bool | None = None


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of `repetition_detection`, vLLM 0.24 and later.

    The scheduler compares each size of a pattern for each token, in the loop of all requests: 64,000 sizes took 43 ms,
    and 256 took 0.2 ms (v1/core/sched/utils.py of 0.29).
    """

    max_pattern_size: Annotated[int, Meta(ge=0, le=256)] = 0
    min_pattern_size: Annotated[int, Meta(ge=0, le=256)] = 0
    min_count: Int64 = 0


class VllmFields(SamplingFields, frozen=True, kw_only=True):
    """The numbers in bodies for vLLM's classes, whose own models make numbers of texts, such as "nan"."""

    max_output_tokens: Count | None = None
    max_tool_calls: Int64 | None = None
    top_logprobs: Int64 | None = None
    prompt_logprobs: Int64 | None = None
    # A beam search divides by the length to the power of this, which must be neither 0 nor infinite.
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None
    priority: Int64 | None = None
    truncate_prompt_tokens: Int64 | None = None
    stream_interval: Count | None = None
    routed_experts_prompt_start: Int64 | None = None
    repetition_detection: RepetitionDetection | None = None


Fields = TypeVar("Fields", bound=msgspec.Struct)

# msgspec inspects a type when it first meets it, and crashes if two threads do so at the same time. The first two
# requests after a start did (msgspec 0.22.0, "Segmentation fault").
_INSPECTING = threading.Lock()


@cache
def _inspect(fields: type[Any]) -> msgspec.json.Decoder[Any]:
    """Makes msgspec inspect a type. The decoder itself is not needed."""
    return msgspec.json.Decoder(fields)


@cache
def _integers(fields: type[Any]) -> frozenset[str]:
    """The names of the fields that are an integer, or null."""
    return frozenset(name for name, kind in get_type_hints(fields).items() if int in (kind, *get_args(kind)))


def whole_numbers(values: object) -> object:
    """A list of token ids with 5.0 as 5. Anything else is left as it is, for the check of its type."""
    if not isinstance(values, list) or float not in set(map(type, values)):
        return values
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]


def convert(document: Mapping[str, Any], fields: type[Fields], prefix: str = "", *, strict: bool = True) -> Fields:
    """The typed body. Unknown fields are ignored, unless they look like a misspelling.

    An integer or a token id may be written as 16.0, as in vLLM: some clients' JSON has no other numbers.

    :param prefix: of the names in errors.
    :param strict: numbers and booleans may not be texts, as they are in a form.
    :raises InvalidField: a value has the wrong type or is out of bounds. The error names its field.
    :raises UnknownField: an unknown field is almost a known one.
    """
    names = fields.__struct_fields__
    check_near_misses([name for name in document if name not in names and name not in meanings(Body.CHAT)], names)
    whole: dict[str, object] = {
        name: int(value)
        for name, value in document.items()
        if isinstance(value, float) and value.is_integer() and name in _integers(fields)
    }
    if "stop_token_ids" in document:
        whole["stop_token_ids"] = whole_numbers(document["stop_token_ids"])
    with _INSPECTING:
        _inspect(fields)
    try:
        return msgspec.convert({**document, **whole} if whole else document, fields, strict=strict)
    except msgspec.ValidationError as error:
        raise _invalid_field(str(error), prefix) from None


def _invalid_field(message: str, prefix: str) -> InvalidField:
    """An error from msgspec's message, such as "Expected `int`, got `str` - at `$.max_tokens`"."""
    problem, _, path = message.partition(" - at `$.")
    return InvalidField(prefix + (re.sub(r"`$", "", path) or "body"), problem[0].lower() + problem[1:])


def sampler_arguments(fields: SamplerFields) -> dict[str, Any]:
    """The arguments of `Sampling` that have the same names and meanings in all bodies."""
    penalties = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    same = {name: getattr(fields, name) for name in ("top_p", "top_k", "min_p", *penalties, "seed")}
    return {**same, "stop_token_ids": tuple(fields.stop_token_ids or ())}


def sampling(fields: SamplingFields, max_tokens: int | None, max_tokens_field: str = "max_tokens") -> Sampling:
    """The engine's sampling parameters for a body.

    :raises InvalidField: a stop string is empty, or min_tokens is larger than the maximum.
    """
    if fields.stream_options is not None and not fields.stream:
        raise InvalidField("stream_options", "it is allowed only with 'stream': true")
    stop = stop_strings("stop", fields.stop)
    minimum = fields.min_tokens or 0
    if max_tokens is not None and minimum > max_tokens:
        raise InvalidField("min_tokens", f"{minimum} is more than '{max_tokens_field}', {max_tokens}")
    return Sampling(
        **sampler_arguments(fields),
        max_tokens=max_tokens,
        max_tokens_field=max_tokens_field,
        min_tokens=minimum,
        temperature=fields.temperature,
        stop=stop,
        ignore_eos=fields.ignore_eos,
        include_stop_str_in_output=fields.include_stop_str_in_output,
        skip_special_tokens=fields.skip_special_tokens,
        spaces_between_special_tokens=fields.spaces_between_special_tokens,
    )
