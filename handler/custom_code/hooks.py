"""Runs the hooks of `code/inference.py` as the Transformer of `sagemaker-inference` does, without its faults.

The faults of the Transformer, seen on sagemaker-inference 1.10.1 (sagemaker_inference/transformer.py): it loads the
model at the first request, and more than once with several threads. It gives the first request's context to every
request, answers bad input with 500, sends tracebacks to clients, and does not stream.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Final

from sagemaker_inference import content_types, encoder, parameters

from handler.custom_code.code_contract import INVOCATIONS, CodeReply, CodeRequest, piece
from handler.custom_code.code_source import CodeSource
from handler.custom_code.default_handler import EngineInferenceHandler, framed, media_type
from handler.custom_code.engine_model import EngineModel
from handler.custom_code.hook_caller import Hook, HookCaller, is_stream
from handler.custom_code.hook_context import HookContext
from handler.custom_code.module_loader import load_error, load_module
from handler.errors import EndpointError, InvalidBody, SettingError
from handler.schemas.reply import encode

# The number of each hook's arguments, without the context.
ARGUMENTS: Final[Mapping[str, int]] = {
    "model_fn": 1,
    "input_fn": 2,
    "predict_fn": 2,
    "output_fn": 2,
    "transform_fn": 4,
    "pre_model_fn": 1,
    "model_warmup_fn": 2,
}
PARTS: Final = ("input_fn", "predict_fn", "output_fn")


@dataclass(frozen=True, slots=True)
class HookedCode:
    """The loaded hooks and their model. It does not change after the start."""

    may_decline: ClassVar[bool] = False
    manages_sessions: ClassVar[bool] = False
    hooks: Mapping[str, Hook]
    model: object
    model_dir: str
    engine: EngineModel | None
    default_accept: str
    caller: HookCaller

    def answers(self, method: str, path: str) -> bool:
        return (method, path) == INVOCATIONS

    def invoke(self, request: CodeRequest) -> CodeReply:
        context = HookContext(self.model_dir, self.engine, request.headers, request.request_id)
        body: bytes | str = request.body
        if media_type(request.content_type) in content_types.UTF8_TYPES:
            try:
                body = request.body.decode()
            except UnicodeDecodeError as error:
                raise InvalidBody(f"byte {error.start} is not valid UTF-8") from None
        accept = request.accept
        if not accept or accept == content_types.ANY:
            accept = self.default_accept
        result = self._transform(body, request.content_type, accept, context)
        first = accept.split(",")[0].split(";")[0].strip()
        content_type = context.get_response_content_type() or (self.default_accept if "*" in first else first)
        if isinstance(result, tuple) and len(result) == 2:
            result, content_type = result[0], str(result[1] or content_type)
        headers = {key: value for key, value in context.response_headers.items() if key.lower() != "content-type"}
        return CodeReply(self._body(result, content_type), content_type, context.status, headers)

    def _transform(self, body: bytes | str, content_type: str, accept: str, context: HookContext) -> Any:
        if "transform_fn" in self.hooks:
            hook = self.hooks["transform_fn"]
            return self.caller.call(hook, self.model, body, content_type, accept, context=context)
        data = self.caller.call(self.hooks["input_fn"], body, content_type, context=context)
        prediction = self.caller.call(self.hooks["predict_fn"], data, self.model, context=context)
        output = self.hooks["output_fn"]
        if is_stream(prediction) and isinstance(getattr(output.function, "__self__", None), EngineInferenceHandler):
            return framed(self._with_error_item(self.caller.pieces("predict_fn", prediction)), accept)
        return self.caller.call(output, prediction, accept, context=context)

    def _with_error_item(self, items: Iterator[Any]) -> Iterator[Any]:
        """Adds the error as the last item of a stream that fails. The stream then ends without HTTP's end mark."""
        begun = False
        try:
            for item in items:
                yield item
                begun = True
        except EndpointError as error:
            if begun:
                yield error.document()
            raise

    def _body(self, result: object, content_type: str) -> bytes | Iterator[bytes]:
        if is_stream(result):
            name = "transform_fn" if "transform_fn" in self.hooks else "output_fn"
            return (piece(item) for item in self.caller.pieces(name, result))
        if isinstance(result, str):
            return result.encode()
        if isinstance(result, bytes | bytearray | memoryview):
            return bytes(result)
        if content_type in encoder.SUPPORTED_CONTENT_TYPES:
            encoded: str | bytes = encoder.encode(result, content_type)
            return encoded.encode() if isinstance(encoded, str) else encoded
        return encode(result)


def load_hooks(source: CodeSource, engine: EngineModel | None, module: ModuleType | None = None) -> HookedCode:
    """Imports the module, and loads its model once.

    :param module: the module, if it is imported already.
    :raises SettingError: the hooks cannot be combined, or a hook that runs at the start raised an exception.
    """
    module = module or load_module(source.file)
    handler = EngineInferenceHandler()
    defined = {name: getattr(module, name) for name in ARGUMENTS if callable(getattr(module, name, None))}
    if "transform_fn" in defined and any(name in defined for name in PARTS):
        fix = "Keep transform_fn, or the three other hooks."
        raise SettingError("transform_fn", "it cannot be combined with input_fn, predict_fn or output_fn", fix)
    hooks = {name: Hook.of(name, function, ARGUMENTS[name]) for name, function in defined.items()}
    for name in () if "transform_fn" in defined else PARTS:
        hooks.setdefault(name, Hook(name, getattr(handler, f"default_{name}"), takes_context=True))
    hooks.setdefault("model_fn", Hook("model_fn", handler.default_model_fn, takes_context=True))
    model_dir, caller = str(source.model_dir), HookCaller()
    context = HookContext(model_dir, engine)

    def run(name: str, *arguments: object) -> Any:
        if name not in hooks:
            return None
        try:
            return caller.call(hooks[name], *arguments, context=context)
        except EndpointError as error:
            raise load_error(source.file.name, name, error) from error

    run("pre_model_fn", model_dir)
    model = run("model_fn", model_dir)
    run("model_warmup_fn", model_dir, model)
    accept = os.environ.get(parameters.DEFAULT_INVOCATIONS_ACCEPT_ENV) or content_types.JSON
    return HookedCode(hooks, model, model_dir, engine, accept, caller)
