"""The defaults for hooks that custom code does not define: those of `sagemaker-inference`, with the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import msgspec
import numpy
from sagemaker_inference import content_types, encoder, errors, utils
from sagemaker_inference.default_inference_handler import DefaultInferenceHandler

from handler.custom_code import array_limits
from handler.custom_code.code_errors import NoEngine
from handler.custom_code.engine_model import EngineModel
from handler.custom_code.hook_context import HookContext
from handler.errors import InvalidBody, InvalidField
from handler.schemas.json_body import check_brackets
from handler.schemas.openai.model_names import ADAPTER_HEADER
from handler.schemas.reply import JSON_LINES, SSE, encode

# What an Accept header may name in the place of a type -> the type.
RANGES: Final = dict.fromkeys((content_types.ANY, "application/*"), content_types.JSON) | {"text/*": content_types.CSV}


class EngineInferenceHandler(DefaultInferenceHandler):  # type: ignore[misc]  # the library is untyped
    """Default hooks: the model is the engine, and a JSON object is answered as /invocations would answer it.

    Everything else is the library's, except for three faults of its decoders: here an `.npy` body cannot contain
    pickles, a JSON object stays an object, and the memory of an array is bounded.
    """

    def default_model_fn(self, model_dir: str, context: HookContext | None = None) -> EngineModel:
        if context is None or context.engine is None:
            raise NoEngine
        return context.engine

    def default_input_fn(self, input_data: Any, content_type: str, context: HookContext | None = None) -> Any:
        kind = media_type(content_type)
        if kind == content_types.JSON:
            body = input_data.encode() if isinstance(input_data, str) else bytes(input_data)
            check_brackets(body)
            document = _decode(body, None if context is None else context.engine)
            if isinstance(document, dict):
                return document
            if b'"' in body:
                array_limits.check_values(document)
            try:
                return numpy.array(document)
            except ValueError:
                raise InvalidBody(
                    "its lists do not make an array: their lengths differ, or they are too deep"
                ) from None
        try:
            if kind == content_types.NPY:
                return numpy.load(BytesIO(input_data), allow_pickle=False)
            if kind == content_types.CSV:
                array_limits.check_cells(input_data)
            if kind == content_types.NPZ:
                array_limits.check_npz(input_data)
            return super().default_input_fn(input_data, kind, context)
        except (errors.UnsupportedFormatError, InvalidBody):
            raise
        except Exception as error:
            raise InvalidBody(f"it is not valid {kind} ({type(error).__name__})") from None

    def default_predict_fn(self, data: Any, model: Any, context: HookContext | None = None) -> Any:
        if not isinstance(model, EngineModel):
            return super().default_predict_fn(data, model, context)
        if not isinstance(data, dict):
            raise InvalidBody("it is not a JSON object")
        if data.get("stream"):
            raise InvalidField(
                "stream", "the default predict_fn cannot stream: define a predict_fn that returns model.stream(...)"
            )
        return model.respond(data, None if context is None else context.get_request_header(0, ADAPTER_HEADER))

    def default_output_fn(self, prediction: Any, accept: str, context: HookContext | None = None) -> tuple[Any, str]:
        for kind in map(media_type, utils.parse_accept(accept)):
            kind = RANGES.get(kind, kind)
            if kind in encoder.SUPPORTED_CONTENT_TYPES:
                return encoder.encode(prediction, kind), kind
        raise errors.UnsupportedFormatError(accept)


def media_type(content_type: str) -> str:
    """The type in a Content-Type header, without its parameters."""
    return content_type.split(";")[0].strip().lower()


def _decode(body: bytes, engine: EngineModel | None) -> Any:
    """A JSON document. It may have NaN and Infinity, as in the library, but not an object that the engine may get.

    :raises InvalidBody: the body is not valid JSON.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        invalid = InvalidBody(f"it is not valid JSON ({error})")
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise invalid from None
    if engine is not None and isinstance(document, dict):
        raise invalid
    return document


def framed(items: Iterator[Any], accept: str) -> tuple[Iterator[bytes], str]:
    """Frames a stream for the default output_fn: each item is a JSON document, as a line or as a server-sent event."""
    if SSE in accept:
        return (b"data: " + encode(item) + b"\n\n" for item in items), SSE
    return (encode(item) + b"\n" for item in items), JSON_LINES
