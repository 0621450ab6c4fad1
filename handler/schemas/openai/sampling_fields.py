"""The fields that OpenAI's bodies share, with their types and bounds, and the handling of unsupported fields."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from handler.engine.generation.generation import Sampling
from handler.errors import InvalidField, UnknownField, UnsupportedField
from handler.schemas.openai import guided_decoding

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Bounds as vLLM checks them (vllm/sampling_params.py, SamplingParams._verify_args).
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that chat and completion bodies have in common."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = 0
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    frequency_penalty: Penalty | None = 0.0
    presence_penalty: Penalty | None = 0.0
    seed: Int64 | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Annotated[int, Meta(ge=0)]] | None = None
    n: Count | None = 1
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    add_special_tokens: bool | None = None
    user: str | None = None


Fields = TypeVar("Fields", bound=msgspec.Struct)

# Fields that the plain path does not support, each with the values that have no effect. Any other value selects the
# vLLM path.
VLLM_PATH_FIELDS: Mapping[str, tuple[object, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    **dict.fromkeys(guided_decoding.OLDER, (None,)),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "reasoning_effort": (None,),
    "echo": (None, False),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1, 1.0),
    "prompt_embeds": (None,),
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "truncate_prompt_tokens": (None,),
    "documents": (None, []),
    "chat_template": (None,),
    "mm_processor_kwargs": (None,),
    "priority": (None, 0),
    "return_token_ids": (None, False),
    "return_tokens_as_token_ids": (None, False),
    "cache_salt": (None,),
    "kv_transfer_params": (None,),
    "vllm_xargs": (None, {}),
    "request_id": (None,),
}
# Fields of the API that no path supports: vLLM 0.16 ignores them silently, or rejects every value.
REJECTED_FIELDS: Mapping[str, tuple[object, ...]] = {
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "logits_processors": (None, []),
    "guided_decoding_backend": (None,),
}
UNSERVED: Mapping[str, tuple[object, ...]] = {**VLLM_PATH_FIELDS, **REJECTED_FIELDS}


def has_effect(name: str, value: object, fields: Mapping[str, tuple[object, ...]]) -> bool:
    """Whether a field is in `fields` and its value has an effect."""
    return name in fields and not any(value == none and type(value) is type(none) for none in fields[name])


# Comparing a name with all known names takes 0.1 ms. So only this many unknown fields are compared, and only short
# ones.
MAX_UNKNOWN = 32
MAX_NAME = 64


# msgspec inspects a type when it first meets it, and crashes if two threads do so at the same time. The first two
# requests after a start did (msgspec 0.22.0, "Segmentation fault").
_INSPECTING = threading.Lock()


@cache
def _inspect(fields: type[Any]) -> msgspec.json.Decoder[Any]:
    """Makes msgspec inspect a type. The decoder itself is not needed."""
    return msgspec.json.Decoder(fields)


def convert(document: Mapping[str, Any], fields: type[Fields]) -> Fields:
    """The typed body. Unknown fields are ignored, as vLLM does, unless they look like a misspelling.

    :raises InvalidField: a value has the wrong type or is out of bounds. The error names its field.
    :raises UnsupportedField: a field that is not supported has a value with an effect.
    :raises UnknownField: an unknown field is almost a known one.
    """
    names = fields.__struct_fields__
    unknown = 0
    for name, value in document.items():
        if name in names:
            continue
        if name in UNSERVED:
            check_unserved(name, value)
        elif unknown < MAX_UNKNOWN and len(name) <= MAX_NAME:
            unknown += 1
            check_near_miss(name, names)
    with _INSPECTING:
        _inspect(fields)
    try:
        return msgspec.convert(document, fields, strict=True)
    except msgspec.ValidationError as error:
        raise _invalid_field(str(error)) from None


def check_unknown_fields(document: Mapping[str, Any], names: Collection[str]) -> None:
    """Checks unknown fields as `convert` does, for a body that is not converted.

    :raises UnknownField: an unknown field is almost a known one.
    """
    unknown = [name for name in document if name not in names and name not in UNSERVED and len(name) <= MAX_NAME]
    for name in unknown[:MAX_UNKNOWN]:
        check_near_miss(name, names)


def check_unserved(name: str, value: object) -> None:
    if has_effect(name, value, UNSERVED):
        raise UnsupportedField(name, "leave it out")


def check_near_miss(name: str, names: Collection[str]) -> None:
    near = difflib.get_close_matches(name, [*names, *UNSERVED], n=1, cutoff=0.85)
    if near:
        raise UnknownField(name, near[0])


def _invalid_field(message: str) -> InvalidField:
    """An error from msgspec's message, such as "Expected `int`, got `str` - at `$.max_tokens`"."""
    problem, _, path = message.partition(" - at `$.")
    return InvalidField(re.sub(r"`$", "", path) or "body", problem[0].lower() + problem[1:])


def sampling(fields: SamplingFields, max_tokens: int | None, max_tokens_field: str = "max_tokens") -> Sampling:
    """The engine's sampling parameters for a body.

    :raises InvalidField: a stop string is empty, or min_tokens is larger than the maximum.
    """
    if fields.stream_options is not None and not fields.stream:
        raise InvalidField("stream_options", "it is allowed only with 'stream': true")
    stop = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
    if "" in stop:
        raise InvalidField("stop", "a stop string is empty")
    minimum = fields.min_tokens or 0
    if max_tokens is not None and minimum > max_tokens:
        raise InvalidField("min_tokens", f"{minimum} is more than '{max_tokens_field}', {max_tokens}")
    return Sampling(
        max_tokens=max_tokens,
        max_tokens_field=max_tokens_field,
        min_tokens=minimum,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        min_p=fields.min_p,
        repetition_penalty=fields.repetition_penalty,
        frequency_penalty=fields.frequency_penalty or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        seed=fields.seed,
        stop=stop,
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ignore_eos=fields.ignore_eos,
        include_stop_str_in_output=fields.include_stop_str_in_output,
        skip_special_tokens=fields.skip_special_tokens,
        spaces_between_special_tokens=fields.spaces_between_special_tokens,
    )
