"""Translates the errors of vLLM's serving classes to endpoint errors that name the field.

A message contains nothing that the client sent, and no traceback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from handler import errors

MAX_MESSAGE = 400
# How vLLM begins an error in a stream.
ERROR_FRAME = 'data: {"error"'
# The part of pydantic's message that quotes the value, which may be a prompt.
QUOTED = re.compile(r"\s*\[type=\w+, input_value=.*?input_type=[\w.]+\]", re.DOTALL)
PARAMETER = re.compile(r"\s*\(parameter=.*\)$", re.DOTALL)  # appended by VLLMValidationError, with the value
MORE = re.compile(r"\s*For further information visit \S+")
# An option of vLLM's command line, for which the owner of an endpoint sets a variable.
OPTION = re.compile(r"(?<!\S)--([a-z]+(?:-[a-z]+)+)")
# The fields that vLLM's messages are about, without naming them. The first that matches counts.
FIELDS = {
    "use_beam_search": re.compile(r"\bbeam search\b", re.IGNORECASE),
    "tool_choice": re.compile(r"\btool_choice\b"),
    "tools": re.compile(r"\btool (choice|calls?|parser)\b|\bTOOL_CALL_PARSER\b"),
    "structured_outputs": re.compile(r"\b(grammar|schema|regex|structured outputs?|choice)\b", re.IGNORECASE),
}
# Field names with which vLLM's messages begin (vllm/sampling_params.py).
NAMED = frozenset(
    {"n", "temperature", "top_p", "top_k", "min_p", "allowed_token_ids", "bad_words", "structured_outputs"}
)
# vLLM's names for fields that have another name in the API.
PARAMETERS = {
    "input_tokens": "prompt",
    "input_text": "prompt",
    "response_id": "previous_response_id",
    "audio_filesize_mb": "file",
}
# As FIELDS, of a form with audio.
FORM_FIELDS = {
    "language": re.compile(r"\blanguage\b", re.IGNORECASE),
    "response_format": re.compile(r"\bresponse_format\b|_json\b"),
    "file": re.compile(r"\b(audio|file)\b", re.IGNORECASE),
}


def from_validation(error: ValidationError) -> errors.ClientError:
    """An error with the wrong field and pydantic's message.

    For a union, pydantic has an error for each member. The one with the longest path is used.
    """
    details = error.errors(include_url=False, include_input=False, include_context=False)
    deepest = max(details, key=lambda detail: len(_path(detail["loc"])))
    cause = next((problem.get("ctx", {}).get("error") for problem in error.errors(include_url=False)), None)
    parameter = getattr(cause, "parameter", None)  # VLLMValidationError
    problem = clean(deepest["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, "))
    path = _path(deepest["loc"])
    if not path and deepest["type"] == "json_invalid":
        return _cut_off()
    if not path:
        return errors.RequestRefused(problem, parameter)
    return errors.InvalidField(_dotted(path), problem[:1].lower() + problem[1:].rstrip("."))


def from_refusal(error: Exception) -> errors.ClientError:
    """An error for vLLM's own exception for a wrong request, with the parameter that it names."""
    return errors.RequestRefused(clean(str(error.args[0] if error.args else "")), getattr(error, "parameter", None))


def _path(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """The keys and indexes of a location, without the type names that pydantic inserts."""
    return tuple(part for part in location if isinstance(part, int) or (part.isidentifier() and not part[:1].isupper()))


def _dotted(path: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def from_response(info: Any, *, dead: bool, prompt: str = "prompt") -> errors.EndpointError:
    """Translates vLLM's ErrorInfo (message, param, code).

    :param prompt: the body's field for the prompt.
    :param dead: the engine's process has ended. Then the error is EngineFailed, whatever the message is.
    """
    return _translated(str(info.message), info.param, int(info.code), dead, prompt)


def from_frame(frame: str, *, dead: bool, prompt: str = "prompt") -> errors.EndpointError:
    """As `from_response`, for an error in a stream: `data: {"error": {...}}`."""
    try:
        error = json.loads(frame.partition("data:")[2])["error"]
        return _translated(str(error["message"]), error.get("param"), int(error["code"]), dead, prompt)
    except (ValueError, KeyError, TypeError):
        return errors.EngineFailed("its process ended") if dead else errors.GenerationFailed("the stream ended early")


def from_exception(error: Exception) -> errors.EndpointError | None:
    """The endpoint error that caused an exception, or one for what vLLM does not implement. None: neither."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, errors.EndpointError):
            return cause
        cause = cause.__cause__
    if isinstance(error, ValidationError):
        return from_validation(error)
    if (problem := _problem_with_media(error)) is not None:
        return errors.RequestRefused(problem)
    if isinstance(error, NotImplementedError):
        return errors.RequestRefused(clean(str(error)) or "vLLM does not implement this")
    return None


def _problem_with_media(error: Exception) -> str | None:
    """What the libraries raise for a client's media, where vLLM answers 500. It wraps some of it, by its version."""
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    status = getattr(error, "status", 500)
    if "aiohttp.ClientResponseError" in kinds and 400 <= status < 500:
        return f"the server of a media URL answered with status {status}"
    if kinds & {"PIL.DecompressionBombError", "PIL.UnidentifiedImageError"}:
        return "an image cannot be read, or is too large"
    return None


def _translated(message: str, param: str | None, code: int, dead: bool, prompt: str = "prompt") -> errors.EndpointError:
    if dead:
        return errors.EngineFailed("its process ended")
    message = clean(message)
    param = PARAMETERS.get(param or "", param)
    if code == 503:
        return errors.EngineBusy()
    if code >= 500 and code != 501:
        return errors.GenerationFailed("an internal error")  # vLLM has logged the text
    if code == 404:
        return errors.NothingStored(message, param)
    if "context length" in message or "max_model_len" in message:
        return errors.ContextExceeded(message, param or ("file" if prompt == "file" else "prompt"))
    if code == 501 and param:
        return errors.UnsupportedField(param, "leave it out")
    if "Invalid JSON" in message:
        return _cut_off()
    if param in (None, "prompt") and "out of vocabulary" in message:
        param = prompt
    for described in (FIELDS, *([FORM_FIELDS] if prompt == "file" else [])):
        param = param or next((field for field, about in described.items() if about.search(message)), None)
    if param is None and message.split(" ", 1)[0] in NAMED:
        param = message.split(" ", 1)[0]
    return errors.RequestRefused(message, param)


def _cut_off() -> errors.RequestRefused:
    """vLLM reads the JSON of a required tool call (tool_choice) when the model has ended it, or the limit has."""
    return errors.RequestRefused(
        "the model's tool call ended before its JSON was complete: raise 'max_tokens'", "max_tokens"
    )


def clean(message: str) -> str:
    """A message as one short line, without quoted values. An option of the command line is named as its variable."""
    message = PARAMETER.sub("", MORE.sub("", QUOTED.sub("", message)))
    message = OPTION.sub(lambda option: f"SM_VLLM_{option[1].replace('-', '_').upper()}", message)
    return " ".join(message.split())[:MAX_MESSAGE]
