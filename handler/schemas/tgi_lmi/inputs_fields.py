"""The fields of an `inputs` body with their types and bounds, and the parameters that are not supported.

Sources: text-generation-inference, router/src/{lib,validation}.rs; djl-serving,
serving/docs/lmi/user_guides/lmi_input_output_schema.md and djl_python/lmi_vllm/request_response_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from handler.engine.generation.generation import Grammar
from handler.errors import InvalidField, UnknownField, UnsupportedField
from handler.schemas.openai.sampling_fields import Count, Int64, Penalty, convert, has_effect

TGI: Final = "tgi"
LMI: Final = "lmi"
MAX_INPUTS: Final = 64
MAX_BEST_OF: Final = 8
MAX_GRAMMAR: Final = 64 * 1024
# Parameters that are not supported, each with the values that have no effect. Other values are rejected.
UNSERVED: Final[Mapping[str, tuple[object, ...]]] = {
    "watermark": (None, False),
    "typical_p": (None, 1.0),
    "n": (None, 1),
    "num_return_sequences": (None, 1),
    "num_beams": (None, 1),
    "length_penalty": (None, 1.0),
    "early_stopping": (None, False),
    "bad_sequences": (None, []),
    "logprobs": (None, False),
    "prompt_logprobs": (None, False),
    "cached_prompt": (None,),
}
FIXES: Final[Mapping[str, str]] = {
    "n": "send 'best_of', or a list of 'inputs'",
    "num_return_sequences": "send 'best_of', or a list of 'inputs'",
    "logprobs": "send 'details': true, and 'top_n_tokens' for the likeliest tokens",
    "prompt_logprobs": "send 'decoder_input_details': true",
}
# Names of other APIs, and the names in this API.
OTHER_NAMES: Final[Mapping[str, str]] = {"max_tokens": "max_new_tokens", "max_length": "max_new_tokens"}


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The supported parameters. None means the default of the schema or of the model."""

    max_new_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    do_sample: bool | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Int64 | None = None
    stop: list[str] | None = None
    stop_sequences: list[str] | None = None
    stop_token_ids: list[Annotated[int, Meta(ge=0)]] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos_token: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    return_full_text: bool | None = None
    truncate: Count | None = None
    details: bool | None = None
    decoder_input_details: bool | None = None
    top_n_tokens: Annotated[int, Meta(ge=0, le=20)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_BEST_OF)] | None = None
    grammar: dict[str, Any] | None = None
    adapter_id: str | None = None
    output_formatter: Literal["json", "jsonlines", "sse"] | None = None


class InputsFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an `inputs` body."""

    inputs: str | Annotated[list[Any], Meta(min_length=1, max_length=MAX_INPUTS)]
    parameters: dict[str, Any] | None = None
    stream: bool | None = None
    model: str | None = None
    adapters: str | list[str | None] | None = None

    def models(self, parameters: Parameters) -> list[str | None]:
        """The adapter's name for each text. None is the model without an adapter. Messages have one name.

        LMI's `adapters` is a name, or a list with a name for each text (djl-serving, serving/docs/adapters_api.md and
        engines/python/setup/djl_python/input_parser.py).

        :raises InvalidField: there are not as many names as texts, or another field also names an adapter.
        """
        texts = len(self.inputs) if isinstance(self.inputs, list) and isinstance(self.inputs[0], str) else 1
        if self.adapters is None:
            return [parameters.adapter_id or self.model] * texts
        if parameters.adapter_id or self.model:
            raise InvalidField(
                "adapters",
                "'model', 'parameters.adapter_id' or a header names an adapter as well: send only one of them",
            )
        if isinstance(self.adapters, str):
            return [self.adapters or None] * texts
        if len(self.adapters) != texts:
            raise InvalidField("adapters", f"it has {len(self.adapters)} names for {texts} inputs")
        return [name or None for name in self.adapters]


def parameters_of(document: Mapping[str, Any]) -> Parameters:
    """The typed parameters.

    :raises ClientError: a parameter is wrong. The error names it.
    """
    for name in UNSERVED:
        if name in document and has_effect(name, document[name], UNSERVED):
            raise UnsupportedField(f"parameters.{name}", FIXES.get(name, "leave it out"))
    for name, meant in OTHER_NAMES.items():
        if name in document:
            raise UnknownField(f"parameters.{name}", f"parameters.{meant}")
    try:
        return convert({name: value for name, value in document.items() if name not in UNSERVED}, Parameters)
    except InvalidField as error:
        raise InvalidField(f"parameters.{error.field}", error.problem) from None
    except UnsupportedField as error:
        raise UnsupportedField(f"parameters.{error.field}", "leave it out") from None
    except UnknownField as error:
        raise UnknownField(f"parameters.{error.field}", error.meant) from None


def grammar_of(grammar: Mapping[str, Any] | None) -> Grammar | None:
    """TGI's grammar: `{"type": "json", "value": schema}`, `json_schema` with the schema in an object, or `regex`.

    :raises InvalidField: it has none of these forms.
    """
    if grammar is None:
        return None
    name = "parameters.grammar"
    kind, value = grammar.get("type"), grammar.get("value")
    if kind == "json_schema" and isinstance(value, dict):
        value = value.get("schema")
    if kind in ("json", "json_object", "json_schema") and isinstance(value, dict):
        text = msgspec.json.encode(value).decode()
    elif kind in ("json", "json_object", "regex") and isinstance(value, str) and value:
        text = value
    else:
        raise InvalidField(name, 'it must be {"type": "json", "value": schema} or {"type": "regex", "value": "..."}')
    if len(text) > MAX_GRAMMAR:
        raise InvalidField(name, f"it is longer than {MAX_GRAMMAR:,} characters")
    return Grammar("regex" if kind == "regex" else "json", text, name)
