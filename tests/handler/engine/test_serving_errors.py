"""vLLM's errors as ours: the field's name and the reason, and nothing of what the client sent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Literal

import aiohttp
import pytest
from PIL import Image
from pydantic import BaseModel, TypeAdapter, ValidationError

from handler.engine.v1.serving import serving_errors
from handler.errors import (
    ContextExceeded,
    EndpointError,
    EngineBusy,
    EngineFailed,
    GenerationFailed,
    InvalidField,
    NothingStored,
    RequestRefused,
)

SECRET = "correct horse battery staple"


class Inner(BaseModel):
    kind: Literal["a", "b"]
    text: str


class Other(BaseModel):
    kind: Literal["c"]


class Body(BaseModel):
    number: int = 0
    parts: list[Inner | Other] = []


def validation(document: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Body).validate_python(document)
    return caught.value


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"number": SECRET}, "number"),
        ({"parts": SECRET}, "parts"),
        ({"parts": [{"kind": "a", "text": [SECRET]}]}, "parts[0].text"),
        ({"parts": [{"kind": SECRET}]}, "parts[0].kind"),
    ],
)
def test_the_field_is_named_and_its_value_is_not_quoted(document: dict[str, Any], field: str) -> None:
    error = serving_errors.from_validation(validation(document))
    assert isinstance(error, InvalidField)
    assert error.param == field
    assert SECRET not in error.message


def test_a_message_that_quotes_the_value_is_cut() -> None:
    text = f"1 validation error\n {validation({'number': SECRET})}"
    assert SECRET in text
    error = serving_errors.from_response(SimpleNamespace(message=text, param=None, code=400), dead=False)
    assert SECRET not in error.message
    assert "\n" not in error.message


def response(message: str, code: int = 400, param: str | None = None, *, dead: bool = False) -> Any:
    return serving_errors.from_response(SimpleNamespace(message=message, param=param, code=code), dead=dead)


@pytest.mark.parametrize(
    ("message", "code", "kind", "param"),
    [
        ("n must be 1 when using greedy sampling, got 2.", 400, RequestRefused, "n"),
        ("Grammar error: Invalid type: foo", 400, RequestRefused, "structured_outputs"),
        ("This model's maximum context length is 8 tokens. You sent 9", 400, ContextExceeded, "prompt"),
        ("Response with id 'x' not found.", 404, NothingStored, None),
        (f"'NoneType' has no attribute {SECRET}", 500, GenerationFailed, None),
        ("The engine is currently busy", 503, EngineBusy, None),
        ("Invalid JSON: EOF while parsing", 400, RequestRefused, "max_tokens"),
        ("Streaming is not currently supported with beam search.", 400, RequestRefused, "use_beam_search"),
        ('tool_choice="required" requires --tool-call-parser to be set', 400, RequestRefused, "tool_choice"),
        ('"auto" tool choice requires --enable-auto-tool-choice', 400, RequestRefused, "tools"),
    ],
)
def test_what_vllm_answers(message: str, code: int, kind: type[EndpointError], param: str | None) -> None:
    error = response(message, code)
    assert isinstance(error, kind)
    assert error.param == param
    assert SECRET not in error.message


def test_a_tool_call_that_ends_too_early_names_the_limit() -> None:
    """A large reply is built in a thread, where nobody catches pydantic's error before."""
    with pytest.raises(ValidationError) as cut:
        TypeAdapter(list[Inner]).validate_json(f'[{{"number": "{SECRET}')
    error = serving_errors.from_exception(cut.value)
    assert error is not None
    assert (error.status, error.param) == (400, "max_tokens")
    assert SECRET not in error.message


def test_vllms_own_parameter_and_value_are_taken_off() -> None:
    error = response(f"out of range (parameter=logit_bias, value=['{SECRET}'])", param="logit_bias")
    assert error.param == "logit_bias"
    assert error.message == "The request was rejected: out of range."


def test_an_option_of_vllms_command_is_named_as_the_variable_that_sets_it() -> None:
    error = response('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    assert "requires SM_VLLM_ENABLE_AUTO_TOOL_CHOICE and SM_VLLM_TOOL_CALL_PARSER to be set" in error.message


@pytest.mark.parametrize("param", ["input_text", "input_tokens"])
def test_a_name_of_vllms_own_is_the_fields(param: str) -> None:
    assert response("You passed 9 of at most 8. The model's context length is 8", param=param).param == "prompt"


def test_of_a_dead_engine_everything_says_so() -> None:
    assert isinstance(response("anything", dead=True), EngineFailed)
    assert isinstance(serving_errors.from_frame("data: {", dead=True), EngineFailed)


def test_an_error_in_a_stream() -> None:
    frame = f"data: {json.dumps({'error': {'message': SECRET, 'code': 500, 'param': None}})}\n\n"
    error = serving_errors.from_frame(frame, dead=False)
    assert isinstance(error, GenerationFailed)
    assert SECRET not in error.message
    assert isinstance(serving_errors.from_frame("data: nonsense", dead=False), GenerationFailed)


def test_an_error_of_ours_that_vllm_wraps_comes_out_again() -> None:
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = EngineFailed("its process ended")
    assert isinstance(serving_errors.from_exception(wrapped), EngineFailed)
    assert serving_errors.from_exception(ValueError("a")) is None
    assert isinstance(serving_errors.from_exception(NotImplementedError("json_object")), RequestRefused)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("The decoder prompt (length 393) is longer than the maximum model length of 256. max_model_len", "file"),
        ("Unsupported language: 'xx'. Must be one of ['af']", "language"),
        ("Currently do not support verbose_json for asr", "response_format"),
        ("Invalid or unsupported audio file.", "file"),
        ("Audio exceeds maximum allowed duration of 600s", "file"),
        ("Something else", None),
    ],
)
def test_an_error_about_a_form_names_its_field(message: str, field: str | None) -> None:
    info = SimpleNamespace(message=message, param=None, code=400)
    assert serving_errors.from_response(info, dead=False, prompt="file").param == field


def test_what_a_library_says_of_media_is_the_clients() -> None:
    """vLLM 0.16 and 0.24 answer 500 for the status of an image's server, and all for a decompression bomb."""
    where: Any = SimpleNamespace(real_url=SECRET)
    said = {status: aiohttp.ClientResponseError(where, (), status=status, message=SECRET) for status in (404, 503)}
    refused = serving_errors.from_exception(said[404])
    assert refused is not None
    assert (refused.status, "404" in refused.message, SECRET in refused.message) == (400, True, False)
    assert serving_errors.from_exception(said[503]) is None
    bomb = serving_errors.from_exception(Image.DecompressionBombError(SECRET))
    assert bomb is not None
    assert (bomb.status, SECRET in bomb.message) == (400, False)


def test_an_error_in_a_transcriptions_stream_names_the_file() -> None:
    frame = 'data: {"error": {"message": "The context length is 8 tokens", "code": 400}}'
    error = serving_errors.from_frame(frame, dead=False, prompt="file")
    assert (type(error), error.param) == (ContextExceeded, "file")
