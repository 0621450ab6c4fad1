"""The fields that the OpenAI bodies share, their types and bounds, and what happens to the ones we do not serve."""

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

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# Bounds as vLLM checks them (vllm/sampling_params.py, SamplingParams._verify_args).
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat and a completion body have in common."""

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

# What the short path does not serve, each field with the values that ask for nothing: any other value takes the full
# path (vLLM's own serving classes).
FULL: Mapping[str, tuple[object, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "guided_whitespace_pattern": (None,),
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
# Fields of the API that neither path serves: vLLM 0.16 ignores them in silence, or refuses every value.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "logits_processors": (None, []),
    "guided_decoding_backend": (None,),
}
UNSERVED: Mapping[str, tuple[object, ...]] = {**FULL, **REFUSED}


def asks_for(name: str, value: object, fields: Mapping[str, tuple[object, ...]]) -> bool:
    """The field is one of these, and its value asks for something."""
    return name in fields and not any(value == none and type(value) is type(none) for none in fields[name])


# Comparing a name with all known ones costs 0.1 ms: only so many unknown fields are looked at, and only short ones.
MAX_STRANGERS = 32
MAX_NAME = 64


# msgspec looks a type over when it first meets it, and ends the process where two threads do so at once: so did the
# first two requests after a start (msgspec 0.22.0, "Segmentation fault").
_DESCRIBING = threading.Lock()


@cache
def _describe(fields: type[Any]) -> msgspec.json.Decoder[Any]:
    """Has the type looked over; the decoder itself is not needed."""
    return msgspec.json.Decoder(fields)


def convert(document: Mapping[str, Any], fields: type[Fields]) -> Fields:
    """The typed body. Unknown fields are ignored, as vLLM ignores them, unless they look like a slip.

    :raises InvalidField: a value of the wrong type or out of bounds, naming the field.
    :raises UnsupportedField: a known field that asks for what is not served.
    :raises UnknownField: a near miss of a known field.
    """
    names = fields.__struct_fields__
    strangers = 0
    for name, value in document.items():
        if name in names:
            continue
        if name in UNSERVED:
            check_unserved(name, value)
        elif strangers < MAX_STRANGERS and len(name) <= MAX_NAME:
            strangers += 1
            check_near_miss(name, names)
    with _DESCRIBING:
        _describe(fields)
    try:
        return msgspec.convert(document, fields, strict=True)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None


def check_strangers(document: Mapping[str, Any], names: Collection[str]) -> None:
    """What `convert` does about unknown fields, for a body that it does not convert.

    :raises UnknownField: a near miss of a known field.
    """
    strangers = [name for name in document if name not in names and name not in UNSERVED and len(name) <= MAX_NAME]
    for name in strangers[:MAX_STRANGERS]:
        check_near_miss(name, names)


def check_unserved(name: str, value: object) -> None:
    if asks_for(name, value, UNSERVED):
        raise UnsupportedField(name, "leave it out")


def check_near_miss(name: str, names: Collection[str]) -> None:
    near = difflib.get_close_matches(name, [*names, *UNSERVED], n=1, cutoff=0.85)
    if near:
        raise UnknownField(name, near[0])


def _named(message: str) -> InvalidField:
    """msgspec says "Expected `int`, got `str` - at `$.max_tokens`": the path becomes the field's name."""
    problem, _, path = message.partition(" - at `$.")
    return InvalidField(re.sub(r"`$", "", path) or "body", problem[0].lower() + problem[1:])


def sampling(fields: SamplingFields, max_tokens: int | None, max_tokens_field: str = "max_tokens") -> Sampling:
    """The engine's sampling for a body.

    :raises InvalidField: an empty stop string, or more minimum than maximum tokens.
    """
    if fields.stream_options is not None and not fields.stream:
        raise InvalidField("stream_options", "it goes with 'stream': true only")
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
