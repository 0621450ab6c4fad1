"""The forms of /v1/audio/transcriptions and /v1/audio/translations, which vLLM's own serving classes answer.

A form has texts, of which numbers and booleans are made here. Fields that vLLM ignores or knows by its name alone are
rejected. Sources: platform.openai.com/docs/api-reference/audio, vLLM 0.29 (entrypoints/speech_to_text).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from handler.engine.api_routes import Route
from handler.engine.contract import PreparedRequest
from handler.engine.engine import Engine
from handler.engine.generation import sampling_check
from handler.engine.generation.generation import Sampling, StopReason
from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import Count, SamplerFields, convert, sampler_arguments
from handler.schemas.openai.vllm_path import ServedCall, ServedReply

FILE: Final = "file"
SEND_AUDIO: Final = "send the audio as the file of a form (multipart/form-data)"
TEXT: Final = "text"
VERBOSE: Final = "verbose_json"
# vLLM takes nested marks out of a prompt in a loop over all of it, while nobody else is answered: 0.04 s for as many
# characters, and minutes for a quarter of a million (0.29.0, models/qwen3_asr.py).
Words = Annotated[str, Meta(max_length=4096)]


class SpeechFields(SamplerFields, frozen=True, kw_only=True):
    file: bytes
    model: str | None = None
    language: Words | None = None
    to_language: Words | None = None
    prompt: Words | None = None
    hotwords: Words | None = None
    response_format: Literal["json", "text", "verbose_json", "diarized_json"] = "json"
    timestamp_granularities: tuple[Literal["segment"], ...] = ()
    stream: bool = False
    stream_include_usage: bool = False
    stream_continuous_usage_stats: bool = False
    max_completion_tokens: Count | None = None


# vLLM's models of forms do not have the other two.
FIELDS: Final = frozenset(SpeechFields.__struct_fields__) - {"min_tokens", "stop_token_ids"}


def parse(route: Route, document: Mapping[str, Any], engine: Engine, headers: Mapping[str, str]) -> ServedCall:
    """:raises ClientError: a field is wrong. The error names it."""
    if not isinstance(document.get(FILE), bytes):
        raise MissingField(FILE, SEND_AUDIO)
    document = {name: value for name, value in document.items() if value != ""}
    for name in document:
        if name not in FIELDS:
            raise UnsupportedField(name, "leave it out")
    fields = convert(document, SpeechFields, strict=False)
    for name in document:
        if getattr(fields, name) == math.inf:  # no JSON has it
            raise InvalidField(name, "it is infinite")
    if fields.stream and fields.response_format not in ("json", TEXT):
        raise InvalidField("response_format", f"a stream has no {fields.response_format}: send 'json'")
    if fields.timestamp_granularities and fields.response_format != VERBOSE:
        raise InvalidField("timestamp_granularities", f"it is for the response_format '{VERBOSE}'")
    check_model(fields.model, engine.served_names)
    _check_sampling(fields, engine)
    body = {name: getattr(fields, name) for name in document if name != "timestamp_granularities"}
    prepared = engine.require_serving().request(route, body, headers)
    return SpeechCall(prepared, text=fields.response_format == TEXT)


def _check_sampling(fields: SpeechFields, engine: Engine) -> None:
    limits, name = engine.limits.sampling, "max_completion_tokens"
    if fields.response_format == VERBOSE and not limits.logprobs:
        raise UnsupportedField("response_format", "the device returns no log probabilities: send 'json' or 'text'")
    engine.limits.check_max_tokens(fields.max_completion_tokens, name)
    parameters = Sampling(
        **sampler_arguments(fields),
        max_tokens=fields.max_completion_tokens,
        max_tokens_field=name,
        temperature=fields.temperature,
    )
    sampling_check.check(parameters, limits)


class SpeechCall(ServedCall):
    """:param text: the reply is plain text."""

    __slots__ = ()

    def __init__(self, prepared: PreparedRequest, *, text: bool) -> None:
        super().__init__(prepared)
        if text:
            self.reply = TextReply(prepared.route)


class TextReply(ServedReply):
    """The text alone. vLLM has a JSON document for it."""

    __slots__ = ()
    content_type = "text/plain; charset=utf-8"

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return str(getattr(self.document, "text", "")).encode()
