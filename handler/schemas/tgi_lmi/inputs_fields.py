"""The fields of an `inputs` body with their types and bounds.

Sources: text-generation-inference, router/src/{lib,validation}.rs; djl-serving,
serving/docs/lmi/user_guides/lmi_input_output_schema.md and djl_python/lmi_vllm/request_response_utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from handler.engine.generation.generation import Grammar
from handler.errors import InvalidField
from handler.schemas.openai.sampling_fields import Count, SamplerFields

TGI: Final = "tgi"
LMI: Final = "lmi"
MAX_TEXTS: Final = 64
MAX_MESSAGES: Final = 4096
MAX_BEST_OF: Final = 8
MAX_GRAMMAR: Final = 64 * 1024


class Parameters(SamplerFields, frozen=True, kw_only=True):
    """The supported parameters. None means the default of the schema or of the model."""

    max_new_tokens: Count | None = None
    do_sample: bool | None = None
    stop: str | list[str] | None = None
    stop_sequences: list[str] | None = None
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

    inputs: str | Annotated[list[Any], Meta(min_length=1, max_length=MAX_MESSAGES)]
    parameters: dict[str, Any] | None = None
    stream: bool | None = None
    model: str | None = None
    adapters: str | list[str | None] | None = None

    def models(self, parameters: Parameters) -> tuple[str, list[str | None]]:
        """The field that names adapters, and the name for each text. None is the model without an adapter.

        LMI's `adapters` is a name, or a list with a name for each text (djl-serving, serving/docs/adapters_api.md and
        engines/python/setup/djl_python/input_parser.py). Messages have one name.

        :raises InvalidField: there are not as many names as texts, or two fields disagree.
        """
        texts = len(self.inputs) if isinstance(self.inputs, list) and isinstance(self.inputs[0], str) else 1
        named = {"model": self.model, "parameters.adapter_id": parameters.adapter_id, "adapters": self.adapters}
        field, names = "model", None
        for each, value in named.items():
            if value and names and value != names:
                raise InvalidField(each, f"'{field}', or a header, has another value: send only one of them")
            field, names = (each, value) if value else (field, names)
        if not isinstance(names, list):
            return field, [names] * texts
        if len(names) != texts:
            raise InvalidField("adapters", f"it has {len(names)} names for {texts} inputs")
        return field, [name or None for name in names]


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
