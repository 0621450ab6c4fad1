"""`{"inputs": ..., "parameters": {...}, "stream": ...}`: the body of TGI and of DJL's LMI, first slice.

The whole reply is LMI's object, `{"generated_text": ...}`; a stream is TGI's server-sent token events.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from handler.engine.engine import Engine
from handler.engine.generation import Generation, Sampling
from handler.errors import EndpointError, InvalidField, MissingField, UnknownField, UnsupportedField
from handler.schemas.fields import Count, Int64, Penalty, convert
from handler.schemas.models import check_model
from handler.schemas.reply import Call, encode, error_event, event_of

# Defaults of text-generation-inference's GenerateParameters (router/src/lib.rs).
DEFAULT_MAX_NEW_TOKENS = 100
# Parameters of TGI and LMI that are refused by name, each with the values that ask for nothing.
UNSERVED: Mapping[str, tuple[object, ...]] = {
    "best_of": (None, 1),
    "watermark": (None, False),
    "typical_p": (None, 1.0),
    "truncate": (None,),
    "grammar": (None,),
    "adapter_id": (None,),
    "decoder_input_details": (None, False),
    "top_n_tokens": (None, 0),
    "details": (None, False),
}


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that are served."""

    max_new_tokens: Count | None = None
    do_sample: bool | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: Int64 | None = None
    stop: list[str] | None = None
    stop_sequences: list[str] | None = None
    return_full_text: bool | None = False
    ignore_eos_token: bool | None = False


class InputsFields(msgspec.Struct, frozen=True, kw_only=True):
    inputs: str
    parameters: dict[str, Any] | None = None
    stream: bool | None = False
    model: str | None = None


def parse(document: Mapping[str, Any], engine: Engine) -> Call:
    """A TGI or LMI body as a call.

    :raises ClientError: naming the field.
    """
    if document.get("inputs") is None:
        raise MissingField("inputs", "send a string")
    fields = convert(document, InputsFields)
    check_model(fields.model, engine.served_names)
    given = fields.parameters or {}
    if "max_tokens" in given:
        raise UnknownField("parameters.max_tokens", "parameters.max_new_tokens")
    for name, neutral in UNSERVED.items():
        if name in given and given[name] not in neutral:
            raise UnsupportedField(f"parameters.{name}", "leave it out")
    try:
        parameters = convert({key: value for key, value in given.items() if key not in UNSERVED}, Parameters)
    except InvalidField as error:
        raise InvalidField(f"parameters.{error.field}", error.problem) from None
    except UnsupportedField as error:
        raise UnsupportedField(f"parameters.{error.field}", "leave it out") from None
    except UnknownField as error:
        raise UnknownField(f"parameters.{error.field}", error.meant) from None
    ids = engine.prompts.text(fields.inputs, "inputs")
    request_id = f"gen-{uuid.uuid4().hex}"
    prefix = fields.inputs if parameters.return_full_text else ""
    return Call(
        Generation(request_id, ids, _sampling(parameters, engine.max_model_len - len(ids)), bool(fields.stream)),
        InputsReply(prefix),
    )


def _sampling(parameters: Parameters, room: int) -> Sampling:
    """TGI decodes greedily unless sampling is asked for, by `do_sample` or by a temperature."""
    greedy = not parameters.do_sample and parameters.temperature is None
    stop = tuple(parameters.stop or parameters.stop_sequences or ())
    if "" in stop:
        raise InvalidField("parameters.stop", "a stop string is empty")
    return Sampling(
        max_tokens=parameters.max_new_tokens or max(1, min(DEFAULT_MAX_NEW_TOKENS, room)),
        max_tokens_field="parameters.max_new_tokens",
        temperature=0.0 if greedy else parameters.temperature,
        top_p=parameters.top_p,
        top_k=parameters.top_k,
        repetition_penalty=parameters.repetition_penalty,
        frequency_penalty=parameters.frequency_penalty or 0.0,
        presence_penalty=parameters.presence_penalty or 0.0,
        seed=parameters.seed,
        stop=stop,
        ignore_eos=bool(parameters.ignore_eos_token),
    )


class InputsReply:
    """The reply to one `inputs` request."""

    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    __slots__ = ("_index", "_text")

    def __init__(self, prefix: str) -> None:
        self._text = [prefix]
        self._index = 0

    def opening(self) -> bytes:
        return b""

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        self._text.append(text)
        self._index += len(token_ids)
        if finish_reason is None and not text:
            return b""
        token = {
            "id": token_ids[-1] if token_ids else None,
            "text": text,
            "logprob": None,
            "special": not text,
        }
        whole = "".join(self._text) if finish_reason is not None else None
        return event_of({"index": self._index, "token": token, "generated_text": whole, "details": None})

    def closing(self) -> bytes:
        return b""

    def broken(self, error: EndpointError) -> bytes:
        return error_event(error)

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        return encode({"generated_text": "".join([*self._text, text])})
