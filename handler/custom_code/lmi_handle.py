"""Runs LMI's `model.py`: calls `handle(inputs)` once without content, to load the model, and then for each request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from handler.custom_code.code_contract import INVOCATIONS, CodeReply, CodeRequest, piece
from handler.custom_code.code_source import HANDLE, CodeSource
from handler.custom_code.engine_model import EngineModel
from handler.custom_code.hook_caller import Hook, HookCaller, is_stream
from handler.custom_code.lmi_objects import LmiInput, LmiOutput, provide_djl_python
from handler.custom_code.module_loader import load_error, load_module
from handler.errors import EndpointError
from handler.schemas.reply import JSON_LINES


@dataclass(frozen=True, slots=True)
class HandleCode:
    """The loaded `handle` function."""

    may_decline: ClassVar[bool] = True
    manages_sessions: ClassVar[bool] = False
    handle: Hook
    model_dir: str
    engine: EngineModel | None
    caller: HookCaller

    def answers(self, method: str, path: str) -> bool:
        return (method, path) == INVOCATIONS

    def invoke(self, request: CodeRequest) -> CodeReply | None:
        properties = {**request.headers, "model_dir": self.model_dir, "requestId": request.request_id}
        inputs = LmiInput(properties, request.body, self.engine)
        output = self.caller.call(self.handle, inputs, context=None)
        return None if output is None else self._reply(output)

    def _reply(self, output: Any) -> CodeReply:
        if isinstance(output, list) and len(output) == 1 and hasattr(output[0], "properties"):
            output = output[0]
        if not hasattr(output, "properties"):  # a plain value or a generator, which LMI would reject
            reply = LmiOutput()
            output = reply.add_stream_content(output) if is_stream(output) else reply.add(output)
        headers = dict(output.properties)
        content_type = next((headers.pop(key) for key in [*headers] if key.lower() == "content-type"), None)
        if getattr(output, "stream_content", None) is not None:
            return CodeReply(self._stream(output), content_type or JSON_LINES, output.code, headers)
        body = b"".join(output.parts)
        output.execute_finalize()
        return CodeReply(body, content_type or "application/json", output.code, headers)

    def _stream(self, output: LmiOutput) -> Iterator[bytes]:
        formatter = output.stream_output_formatter or (lambda item: item)
        stream = output.stream_content
        if not hasattr(stream, "__anext__"):
            stream = iter(stream)
        try:
            for item in self.caller.pieces(HANDLE, stream):
                yield piece(formatter(item))
        finally:
            output.execute_finalize()


def load_handle(source: CodeSource, engine: EngineModel | None) -> HandleCode:
    """Imports model.py, and calls `handle` without content, so that it loads its model.

    :raises SettingError: the import or the call raised an exception.
    """
    provide_djl_python()
    module = load_module(source.file)
    code = HandleCode(Hook.of(HANDLE, getattr(module, HANDLE), 1), str(source.model_dir), engine, HookCaller())
    try:
        properties = {"model_dir": code.model_dir, "model_id": code.model_dir}
        code.caller.call(Hook(HANDLE, code.handle.function, False), LmiInput(properties, None, engine), context=None)
    except EndpointError as error:
        raise load_error(source.file.name, "handle() without content", error) from error
    return code
