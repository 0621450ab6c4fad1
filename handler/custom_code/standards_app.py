"""Runs custom code with the decorators of `model_hosting_container_standards`, the package of the AWS vLLM images.

The package itself builds the FastAPI application, as it does in those images: it imports `model.py`, mounts the
handlers and adds the middleware. Requests reach the application without a second HTTP server.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from handler.custom_code.asgi_call import call_application
from handler.custom_code.code_contract import INVOCATIONS, CodeReply, CodeRequest, CustomCode
from handler.custom_code.code_errors import CustomCodeRefused, NoEngine
from handler.custom_code.code_source import SCRIPT, SCRIPT_DIRECTORY, STANDARDS, CodeSource
from handler.custom_code.engine_model import EngineModel
from handler.custom_code.hook_caller import HookCaller, as_endpoint_error
from handler.custom_code.module_loader import load_error
from handler.errors import EndpointError, SettingError
from handler.schemas.json_body import decode
from handler.schemas.openai.model_names import ADAPTER_HEADER
from handler.schemas.reply import encode

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

LoadHooks = Callable[[ModuleType | None], CustomCode]


@dataclass(frozen=True, slots=True)
class StandardsCode:
    """The application of the package, with the code's handlers and middleware.

    :param own_invocations: the application answers /invocations. Otherwise the endpoint does.
    """

    may_decline: ClassVar[bool] = False
    manages_sessions: ClassVar[bool] = True
    app: FastAPI
    caller: HookCaller
    own_invocations: bool

    def answers(self, method: str, path: str) -> bool:
        if (method, path) == INVOCATIONS:
            return self.own_invocations
        return _routed(self.app, method, path)

    def invoke(self, request: CodeRequest) -> CodeReply:
        return call_application(self.app, self.caller, request)


def load_standards(source: CodeSource, engine: EngineModel | None, load_hooks: LoadHooks) -> StandardsCode:
    """Imports the code through the package, and builds the application.

    :param load_hooks: loads the hooks beside the decorators. Takes their module if it is imported already.
    :raises SettingError: the package is missing, or the code cannot be loaded.
    """
    os.environ[SCRIPT_DIRECTORY], os.environ[SCRIPT] = str(source.file.parent), source.file.name
    sagemaker = _package(source)
    from fastapi import FastAPI

    app, hooks = FastAPI(openapi_url=None), None
    app.state.engine = engine
    _handle_errors(app)
    try:
        loader = sagemaker.SageMakerFunctionLoader.get_function_loader()
        if source.hooks is not None:
            same = source.hooks.file == source.file
            hooks = load_hooks(loader.load_module_from_file(str(source.file)) if same else None)
        sagemaker.bootstrap(app)
    except EndpointError:
        raise
    except BaseException as error:  # a script that calls sys.exit, too
        raise load_error(source.file.name, "loading it", error) from error
    own = hooks is not None or bool(app.user_middleware) or _routed(app, *INVOCATIONS)
    if not _routed(app, *INVOCATIONS):
        app.router.add_route(INVOCATIONS[1], _default_handler(hooks, engine, sagemaker), methods=["POST"])
    caller = HookCaller()
    caller.loop.run(_unlimit_threads())
    return StandardsCode(app, caller, own)


async def _unlimit_threads() -> None:
    """Lets all requests that the endpoint admits run at once: anyio would have 40 threads for sync code and streams."""
    from anyio.to_thread import current_default_thread_limiter

    current_default_thread_limiter().total_tokens = math.inf


def _routed(app: FastAPI, method: str, path: str) -> bool:
    """Whether the application has a route for a request."""
    from starlette.routing import Match

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    return any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)


def _package(source: CodeSource) -> Any:
    """The package. Its import sets the root logger to the level ERROR (logging_config.py); that is undone.

    :raises SettingError: the package is not installed.
    """
    root = logging.getLogger()
    level, levels = root.level, [(each, each.level) for each in root.handlers]
    try:
        from model_hosting_container_standards import sagemaker
    except ImportError as error:
        fix = f"vLLM installs it since version 0.11. Otherwise name {STANDARDS} in requirements.txt."
        raise SettingError(source.file.name, f"it needs the package {STANDARDS}: {error}", fix) from None
    finally:
        root.setLevel(level)
        for each, own in levels:
            each.setLevel(own)
    return sagemaker


def _default_handler(hooks: CustomCode | None, engine: EngineModel | None, sagemaker: Any) -> Callable[..., Any]:
    """The handler of /invocations for code without one: the hooks, else the engine.

    The engine's has the decorators of vLLM's own (vllm/entrypoints/sagemaker/api_router.py).
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response, StreamingResponse

    def answer(body: bytes, headers: dict[str, str]) -> CodeReply:
        if hooks is None:
            if engine is None:
                raise NoEngine
            return engine.answer(decode(body), headers.get(ADAPTER_HEADER.lower()))
        reply = hooks.invoke(CodeRequest(body, headers, headers.get("content-type", ""), headers.get("accept", "")))
        assert reply is not None, "hooks answer every request"
        return reply

    async def invocations(raw_request: Request) -> Response:
        reply = await run_in_threadpool(answer, await raw_request.body(), dict(raw_request.headers))
        if isinstance(reply.body, bytes):
            return Response(reply.body, reply.status, dict(reply.headers), reply.content_type)
        return StreamingResponse(reply.body, reply.status, dict(reply.headers), reply.content_type)

    if hooks is not None:
        return invocations
    managed: Callable[..., Any] = sagemaker.stateful_session_manager()(
        sagemaker.inject_adapter_id("model")(invocations)
    )
    return managed


def _handle_errors(app: FastAPI) -> None:
    """Makes the application's errors OpenAI's error objects, as vLLM's server does."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import Response

    def reply(error: EndpointError) -> Response:
        return Response(encode(error.document()), error.status, media_type="application/json")

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            response = reply(CustomCodeRefused(error.status_code, str(error.detail)))
            response.headers.update(error.headers or {})
            return response
        return reply(CustomCodeRefused(400, str(error)))

    async def failed(request: Request, error: Exception) -> Response:
        return reply(as_endpoint_error(f"{request.method} {request.url.path}", error))

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, refused)
    app.add_exception_handler(EndpointError, failed)
    app.add_exception_handler(Exception, failed)
