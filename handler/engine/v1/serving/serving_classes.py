"""Answers requests with vLLM's own OpenAI serving classes, in this process and over its engine. Tested on 0.16.0.

The input is a route, a JSON object and headers. The output is one document or a stream of server-sent events. A request
is checked in the caller's thread (`request`), and answered on the engine's loop (`reply`). `serving_start` makes the
classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from types import NoneType, SimpleNamespace
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.engine.api_routes import SPEECH, Route, Traits
from handler.engine.contract import PreparedRequest, WholeReply
from handler.engine.engine_client.client_error import CLIENT_ERROR
from handler.engine.generation.generation import TokenCounts
from handler.engine.generation.request_cost import COST, RequestCost, check_ids
from handler.engine.v1.grammar_guard import GrammarUntried
from handler.engine.v1.serving import (
    audio_files,
    fail_fast_validation,
    generate_wrapper,
    response_events,
    response_items,
    serving_errors,
    transcription_events,
)
from handler.engine.v1.serving.reply_building import UnbuiltReply, build, json_pieces
from handler.engine.v1.serving.served_routes import SERVED_ROUTES, ServedRoute, schemas
from handler.errors import EndpointError, EngineFailed, InvalidBody, InvalidField, UnsupportedTask

try:
    from vllm.entrypoints.openai.engine.protocol import ErrorResponse
except ImportError:  # 0.29.0
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

try:
    from vllm.entrypoints.serve.utils.error_response import create_error_response
except ImportError:  # not 0.24.0, whose pooling models have no method for it
    create_error_response = None

# The request headers that vLLM gets: the trace context. Other headers would control vLLM (X-data-parallel-rank,
# X-Request-Id).
HEADERS: Final = ("traceparent", "tracestate")


# The routes with beam search. /v1/responses keeps unknown fields, `use_beam_search` too, but has no beam search.
BEAMS: Final = (Route.CHAT, Route.COMPLETIONS)
TEMPLATE_ARGUMENTS: Final = "chat_template_kwargs"
# The fields with the number of output tokens.
OUTPUT_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def _cost(prepared: PreparedRequest) -> RequestCost:
    open_ended = all(getattr(prepared.request, name, None) is None for name in OUTPUT_LIMITS)
    searching = prepared.route in BEAMS and bool(getattr(prepared.request, "use_beam_search", False))
    return RequestCost(open_ended, searching)


class VllmServing:
    """As `Serving`. `serving_start.start` makes it, on the engine's loop."""

    def __init__(
        self, llm: AsyncLLM, state: SimpleNamespace, traits: Traits, template_defaults: Mapping[str, Any]
    ) -> None:
        """:param template_defaults: arguments of the chat template, for requests that give none."""
        self._llm = llm
        self._state = state
        self._template_defaults = template_defaults
        self._adapters: dict[int, str] = {}
        self.traits = traits
        state.openai_serving_models.model_name = self._model_name

    def fields(self, route: Route) -> frozenset[str]:
        return frozenset(name for model in SERVED_ROUTES[route].models.values() for name in model.model_fields)

    def schemas(self) -> tuple[dict[Route, Any], dict[Route, Any], dict[str, Any]]:
        return schemas()

    def request(self, route: Route, document: Mapping[str, Any], headers: Mapping[str, str]) -> PreparedRequest:
        api = SERVED_ROUTES[route]
        if api.tasks and not api.tasks & self.traits.tasks:
            raise self._unsupported(route)
        if self._serving(api) is None:
            does = "is served by a vLLM whose classes for it are not known here"
            raise UnsupportedTask(route, does, f"use vLLM {api.since} or later")
        if route in SPEECH:
            document = {**document, "file": audio_files.upload(route, document["file"])}
        model = next(model for key, model in api.models.items() if not key or key in document)
        defaulted = _defaulted(model)
        body = {name: value for name, value in document.items() if value is not None or name not in defaulted}
        if self._template_defaults and "messages" in body and TEMPLATE_ARGUMENTS in model.model_fields:
            given = body.get(TEMPLATE_ARGUMENTS)
            if given is None or isinstance(given, Mapping):  # vLLM's own defaults are for chats only
                body[TEMPLATE_ARGUMENTS] = {**self._template_defaults, **(given or {})}
        try:
            request: BaseModel = fail_fast_validation.checked(model, body)
        except ValidationError as error:
            raise serving_errors.from_validation(error) from None
        except EndpointError:
            raise
        except CLIENT_ERROR as error:  # no ValueError in 0.29.0, so pydantic lets it pass
            raise serving_errors.from_refusal(error) from None
        except Exception as error:  # vLLM's validators index values without checking their type
            raise InvalidBody(
                f"a part of it does not have the structure that the API requires ({type(error).__name__})"
            ) from None
        if isinstance(request, ResponsesRequest):
            responses = self._state.openai_serving_responses
            response_events.check_tools(request, responses)
            if not responses.use_harmony:
                response_items.check(request)
        if route is Route.DETOKENIZE:
            check_ids("tokens", getattr(request, "tokens", ()), int(self._llm.model_config.get_vocab_size()) - 1)
        kept = {name: headers[name] for name in HEADERS if name in headers}
        raw = SimpleNamespace(headers=Headers(kept), state=SimpleNamespace())
        return PreparedRequest(
            route, request, raw, bool(getattr(request, "stream", False)), getattr(request, "model", None)
        )

    def _unsupported(self, route: Route) -> UnsupportedTask:
        """The error for a route that needs another model. It names the routes of this one."""
        if route in SPEECH:
            return UnsupportedTask(route, "does not transcribe speech", "serve a model that does, such as Qwen3-ASR")
        if self.traits.generates:
            fix = "serve a model that does, or set SM_VLLM_RUNNER=pooling"
            return UnsupportedTask(route, "generates text, and does not embed, score or classify", fix)
        known = [str(path) for path, api in SERVED_ROUTES.items() if api.tasks & self.traits.tasks]
        tasks = ", ".join(sorted(self.traits.tasks))
        return UnsupportedTask(route, f"has other tasks ({tasks})", f"use {', '.join(known)}")

    def _serving(self, api: ServedRoute) -> Any:
        """The serving object of a route. None if the installed vLLM, or the model's task, has none."""
        servings = (getattr(self._state, name, None) for name in api.state if api.models)
        return next((each for each in servings if hasattr(each, api.method) or callable(each)), None)

    def use_adapter(self, prepared: PreparedRequest, name: str, request: Any) -> None:
        if hasattr(prepared.request, "model"):
            prepared.request.model = name
        models = self._state.openai_serving_models
        old = models.lora_requests.get(name)
        if old is not None:
            self._adapters.pop(old.lora_int_id, None)
        models.lora_requests[name] = request
        self._adapters[request.lora_int_id] = name

    def _model_name(self, lora: Any = None) -> str:
        """The model name in replies. Replaces OpenAIServingModels.model_name."""
        if lora is not None:
            return self._adapters.get(int(lora.lora_int_id), str(lora.lora_name))
        return str(self._state.openai_serving_models.base_model_paths[0].name)

    async def reply(self, prepared: PreparedRequest) -> WholeReply | AsyncIterator[str]:
        api = SERVED_ROUTES[prepared.route]
        serving = self._serving(api)
        prompt = next((name for name in ("file", "input") if hasattr(prepared.request, name)), "prompt")
        generate_wrapper.COUNTED.set(prepared.tokens)
        COST.set(_cost(prepared))
        encoded = ""
        try:
            result = await self._result(prepared, getattr(serving, api.method, serving))
            if isinstance(result, UnbuiltReply):
                result, encoded = await asyncio.to_thread(build, result)
        except Exception as error:
            raise self._error(error, serving, prompt) from None
        if isinstance(result, ErrorResponse):
            raise serving_errors.from_response(result.error, dead=self._llm.errored, prompt=prompt)
        if isinstance(result, Response):  # of a pooling model on 0.24.0 and later
            content = bytes(result.body).decode()
            return WholeReply(None, lambda: content)
        if isinstance(result, BaseModel):
            document = result
            if _cost(prepared).searching:
                _count_beams(prepared.tokens, document)
            return WholeReply(document, lambda: encoded or "".join(json_pieces(document)))
        if prepared.route is Route.RESPONSES:
            single = not getattr(prepared.request, "parallel_tool_calls", True)
            result = response_events.events(result, fix=not serving.use_harmony, single_call=single)
        if prepared.route in SPEECH:
            result = transcription_events.events(result)
        return self._frames(result, serving, prompt)

    async def _result(self, prepared: PreparedRequest, method: Callable[..., Any]) -> Any:
        """What vLLM's method returns, asked again when its grammar had to be tried first."""
        guard = getattr(self._llm, "grammar_guard", None)
        if isinstance(prepared.request, ResponsesRequest):
            # Its stream has begun when vLLM reads these.
            limit = self._llm.model_config.max_logprobs
            if 0 <= limit < (prepared.request.top_logprobs or 0):
                raise InvalidField("top_logprobs", f"at most {limit} are allowed")
            if guard is not None:
                await guard.check(prepared.request.to_sampling_params(1, {}))
        audio = (audio_files.content(prepared.request.file),) if prepared.route in SPEECH else ()
        while True:
            try:
                return await method(*audio, prepared.request, prepared.raw)
            except GrammarUntried as untried:
                assert guard is not None, "nobody else raises it"
                await guard.check_spec(untried.spec)

    async def _frames(self, source: Any, serving: Any, prompt: str) -> AsyncIterator[str]:
        """vLLM's frames. An error frame becomes an exception, because vLLM would send [DONE] after it."""
        try:
            async for frame in source:
                if frame.startswith(serving_errors.ERROR_FRAME):
                    raise serving_errors.from_frame(frame, dead=self._llm.errored, prompt=prompt)
                yield frame
        except EndpointError:
            raise
        except Exception as error:
            raise self._error(error, serving, prompt) from None
        finally:
            await source.aclose()

    def _error(self, error: Exception, serving: Any, prompt: str) -> EndpointError:
        failure = serving_errors.from_exception(error)
        if failure is not None:
            return failure
        if isinstance(error, EngineDeadError):
            return EngineFailed("its process ended")
        response = getattr(serving, "create_error_response", create_error_response)(error)
        return serving_errors.from_response(response.error, dead=self._llm.errored, prompt=prompt)


def _count_beams(tokens: TokenCounts, reply: Any) -> None:
    """Counts by the reply: for a beam search vLLM generates once for each beam and token."""
    tokens.prompt, tokens.output, tokens.finish = reply.usage.prompt_tokens, reply.usage.completion_tokens, None
    for choice in reply.choices:
        tokens.ended(choice.finish_reason)


@cache
def _defaulted(model: type[BaseModel]) -> frozenset[str]:
    """The fields for which null means the default, which is not null. vLLM keeps the null, and may fail of it while it
    answers (0.16.0: `top_logprobs` of a streamed response).
    """
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if not field.is_required() and field.default is not None and NoneType in get_args(field.annotation)
    )
