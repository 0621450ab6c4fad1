"""vLLM's own OpenAI serving classes, in this process, over the engine that the short path uses too. Seen on 0.16.0.

The only module that imports them. What goes in is a route, a JSON object and headers; what comes out is one document or
a stream of server-sent events. A request is checked in the thread that brings it (`request`), and answered on the
engine's loop (`reply`).
"""

from __future__ import annotations

import copy
import dataclasses
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from vllm.entrypoints.openai.api_server import init_app_state
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.cli_args import FrontendArgs
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.engine.protocol import ErrorResponse
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest, EmbeddingCompletionRequest
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest, TokenizeChatRequest, TokenizeCompletionRequest
from vllm.reasoning import ReasoningParserManager
from vllm.tasks import POOLING_TASKS
from vllm.tokenizers import TokenizerLike
from vllm.tokenizers.mistral import MistralTokenizer
from vllm.tool_parsers import ToolParserManager
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.engine.api_routes import Route, Traits
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.token_counts import TokenCounts
from handler.engine.vllm_api.core.grammar_guard import GrammarUntried
from handler.engine.vllm_api.serving import beam_search as beams
from handler.engine.vllm_api.serving import fail_fast_validation as first_error
from handler.engine.vllm_api.serving import (
    response_events,
    response_items,
    serving_errors,
    serving_log,
    serving_schemas,
)
from handler.engine.vllm_api.serving import token_counting as token_count
from handler.errors import EndpointError, EngineFailed, InvalidBody, SettingError, UnsupportedTask

ERROR_FRAME: Final = 'data: {"error"'
# No host has this name (RFC 6761): with no domain allowed, vLLM would fetch from all of them.
NO_DOMAIN: Final = "none.invalid"
# What of a request's headers vLLM may see: trace context. Others steer it (X-data-parallel-rank, X-Request-Id).
HEADERS: Final = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class _Api:
    """One of vLLM's serving objects.

    :param state: where it is, on the versions that have it elsewhere too; `method` is what it is asked by.
    :param models: of a request, by the key that tells them apart; "" is the rest.
    :param pooling: whether the model must make embeddings; None: either.
    """

    state: tuple[str, ...]
    method: str
    models: Mapping[str, type[BaseModel]]
    pooling: bool | None = None


# The routes whose requests may ask for beams. /v1/responses keeps fields that it does not know, this one too.
BEAMS: Final = (Route.CHAT, Route.COMPLETIONS)
TOKENIZATION: Final = ("openai_serving_tokenization", "serving_tokenization")  # 0.24.0
APIS: Final[Mapping[Route, _Api]] = {
    Route.CHAT: _Api(("openai_serving_chat",), "create_chat_completion", {"": ChatCompletionRequest}, False),
    Route.COMPLETIONS: _Api(("openai_serving_completion",), "create_completion", {"": CompletionRequest}, False),
    Route.RESPONSES: _Api(("openai_serving_responses",), "create_responses", {"": ResponsesRequest}, False),
    Route.EMBEDDINGS: _Api(
        ("openai_serving_embedding",),
        "create_embedding",
        {"messages": EmbeddingChatRequest, "": EmbeddingCompletionRequest},
        True,
    ),
    Route.TOKENIZE: _Api(
        TOKENIZATION,
        "create_tokenize",
        {"messages": TokenizeChatRequest, "": TokenizeCompletionRequest},
    ),
    Route.DETOKENIZE: _Api(TOKENIZATION, "create_detokenize", {"": DetokenizeRequest}),
}


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that vLLM's models have taken.

    :ivar tokens: what was counted of it so far.
    """

    route: Route
    request: BaseModel
    raw: SimpleNamespace
    stream: bool
    model: str | None
    tokens: TokenCounts = field(default_factory=TokenCounts)


@dataclass(frozen=True, slots=True)
class WholeReply:
    """One document. It becomes bytes in the thread that sends it, not on the loop."""

    document: BaseModel

    def text(self) -> str:
        return self.document.model_dump_json()


class Serving:
    """vLLM's serving objects over one engine. Make it with `Serving.start`, on the engine's loop."""

    def __init__(self, llm: AsyncLLM, state: SimpleNamespace, traits: Traits) -> None:
        self._llm = llm
        self._state = state
        self._adapters: dict[int, str] = {}
        self.traits = traits
        state.openai_serving_models.model_name = self._model_name

    @classmethod
    async def start(
        cls, llm: AsyncLLM, arguments: Any, front_end: FrontendSettings, max_output_tokens: int | None = None
    ) -> Serving:
        """
        :param arguments: the engine's, as `core.engine_args` made them.
        :param max_output_tokens: of a request that does not say; None: what the context leaves.
        """
        serving_log.quiet()
        token_count.count(llm)
        beams.even(llm)
        if not llm.model_config.allowed_media_domains:
            llm.model_config.allowed_media_domains = [NO_DOMAIN]
        tasks = await llm.get_supported_tasks()
        options = Namespace(
            **{option.name: getattr(FrontendArgs(), option.name) for option in dataclasses.fields(FrontendArgs)}
        )
        for option in dataclasses.fields(front_end):
            setattr(options, option.name, getattr(front_end, option.name))
        options.model = arguments.model
        options.served_model_name = arguments.served_model_name
        options.enable_log_requests = arguments.enable_log_requests
        options.disable_log_stats = arguments.disable_log_stats
        options.structured_outputs_config = llm.vllm_config.structured_outputs_config
        options.log_error_stack = False
        state = SimpleNamespace()
        await init_app_state(llm, state, options, tasks)
        if llm.tokenizer is not None and hasattr(llm.renderer, "get_async_tokenizer"):  # 0.24 has none
            # vLLM encodes prompts in a thread of its own, and its parsers encode on the loop: with one tokenizer, one
            # changes its truncation while the other works, and a good request fails with "Already borrowed".
            encoder = llm.renderer.get_async_tokenizer()
            encoder.tokenizer = copy.deepcopy(encoder.tokenizer)
        if max_output_tokens is not None:
            _cap(state, max_output_tokens)
        return cls(llm, state, _traits(llm, options, tasks))

    def fields(self, route: Route) -> frozenset[str]:
        """The names of every field that vLLM knows on a route."""
        found: set[str] = set()
        for model in APIS[route].models.values():
            found |= set(model.model_fields)
        return frozenset(found)

    def schemas(self) -> tuple[dict[Route, Any], dict[Route, Any], dict[str, Any]]:
        """JSON Schemas of each route's body, of its reply, and of what these refer to. Takes about 3 s."""
        return serving_schemas.schemas({route: api.models for route, api in APIS.items()})

    def request(self, route: Route, document: Mapping[str, Any], headers: Mapping[str, str]) -> PreparedRequest:
        """A request, checked by vLLM's own models. In any thread.

        :raises ClientError: naming the field; or the model that is served does not do this.
        """
        api = APIS[route]
        if api.pooling is not None and api.pooling != self.traits.pooling:
            if api.pooling:
                fix = "serve an embedding model, or set SM_VLLM_RUNNER=pooling"
                raise UnsupportedTask(route, "generates text and makes no embeddings", fix)
            raise UnsupportedTask(route, "makes embeddings and generates no text", "use /v1/embeddings")
        if self._serving(api) is None:
            does = "is served by a vLLM whose classes for it are not known here"
            raise UnsupportedTask(route, does, "use vLLM 0.16.0")
        model = next(model for key, model in api.models.items() if not key or key in document)
        try:
            request: BaseModel = first_error.checked(model, dict(document))
        except ValidationError as error:
            raise serving_errors.from_validation(error) from None
        except EndpointError:
            raise
        except Exception as error:  # vLLM's validators index what the client sent without a look at its kind
            raise InvalidBody(f"a part of it has another shape than the API's ({type(error).__name__})") from None
        if route is Route.RESPONSES and not self._state.openai_serving_responses.use_harmony:
            response_items.check(getattr(request, "input", None))
        kept = {name: headers[name] for name in HEADERS if name in headers}
        raw = SimpleNamespace(headers=Headers(kept), state=SimpleNamespace())
        return PreparedRequest(
            route, request, raw, bool(getattr(request, "stream", False)), getattr(request, "model", None)
        )

    def _serving(self, api: _Api) -> Any:
        """What answers it; None where this version, or this model's task, has none."""
        found = (getattr(self._state, name, None) for name in api.state)
        return next((serving for serving in found if hasattr(serving, api.method)), None)

    def use_adapter(self, prepared: PreparedRequest, name: str, request: Any) -> None:
        """A request for the model `name` is about to be answered with this adapter. On the loop.

        :param name: the model's own name too, where the bare model's requests bring an adapter of zeros.
        :param request: vLLM's LoRARequest; its own name need not be the one that clients know.
        """
        if hasattr(prepared.request, "model"):
            prepared.request.model = name
        models = self._state.openai_serving_models
        old = models.lora_requests.get(name)
        if old is not None:
            self._adapters.pop(old.lora_int_id, None)
        models.lora_requests[name] = request
        self._adapters[request.lora_int_id] = name

    def _model_name(self, lora: Any = None) -> str:
        """In the place of OpenAIServingModels.model_name: the name in replies."""
        if lora is not None:
            return self._adapters.get(int(lora.lora_int_id), str(lora.lora_name))
        return str(self._state.openai_serving_models.base_model_paths[0].name)

    async def reply(self, prepared: PreparedRequest) -> WholeReply | AsyncIterator[str]:
        """One document, or a stream of events. On the loop; cancelling the task that awaits frees the slots.

        :raises EndpointError: before a stream has begun, and in it.
        """
        api = APIS[prepared.route]
        serving = self._serving(api)
        token_count.COUNTED.set(prepared.tokens)
        beams.SEARCHING.set(prepared.route in BEAMS and bool(getattr(prepared.request, "use_beam_search", False)))
        try:
            result = await self._result(prepared, getattr(serving, api.method))
        except Exception as error:
            raise self._error(error, serving) from None
        if isinstance(result, ErrorResponse):
            raise serving_errors.from_response(result.error, dead=self._llm.errored)
        if isinstance(result, BaseModel):
            return WholeReply(result)
        if prepared.route is Route.RESPONSES:
            result = response_events.events(result, fix=not serving.use_harmony)
        return self._frames(result, serving)

    async def _result(self, prepared: PreparedRequest, method: Callable[..., Any]) -> Any:
        """What vLLM's method returns, asked again when its grammar had to be tried first."""
        guard = getattr(self._llm, "grammar_guard", None)
        if guard is not None and isinstance(prepared.request, ResponsesRequest):
            # Its stream has begun when vLLM reads the grammar.
            await guard.check(prepared.request.to_sampling_params(1, {}))
        while True:
            try:
                return await method(prepared.request, prepared.raw)
            except GrammarUntried as untried:
                assert guard is not None, "nobody else raises it"
                await guard.check(untried.params)

    async def _frames(self, source: Any, serving: Any) -> AsyncIterator[str]:
        """vLLM's frames; its error frame, after which it would say [DONE] as if all was well, becomes an error."""
        try:
            async for frame in source:
                if frame.startswith(ERROR_FRAME):
                    raise serving_errors.from_frame(frame, dead=self._llm.errored)
                yield frame
        except EndpointError:
            raise
        except Exception as error:
            raise self._error(error, serving) from None
        finally:
            await source.aclose()

    def _error(self, error: Exception, serving: Any) -> EndpointError:
        found = serving_errors.from_exception(error)
        if found is not None:
            return found
        if isinstance(error, EngineDeadError):
            return EngineFailed("its process ended")
        return serving_errors.from_response(serving.create_error_response(error).error, dead=self._llm.errored)


def _cap(state: SimpleNamespace, tokens: int) -> None:
    """vLLM takes the least of what is asked for, what the context leaves and the model's own default."""
    for name in ("openai_serving_chat", "openai_serving_completion", "openai_serving_responses"):
        serving = getattr(state, name, None)
        if serving is not None:
            own = serving.default_sampling_params
            serving.default_sampling_params = {**own, "max_tokens": min(tokens, own.get("max_tokens", tokens))}


def _traits(llm: AsyncLLM, options: Namespace, tasks: tuple[str, ...]) -> Traits:
    tokenizer: TokenizerLike | None = llm.tokenizer
    return Traits(
        pooling="generate" not in tasks and any(task in POOLING_TASKS for task in tasks),
        multimodal=bool(llm.model_config.is_multimodal_model),
        priorities=llm.vllm_config.scheduler_config.policy == "priority",
        plain_chat=not (
            options.structured_outputs_config.reasoning_parser
            or llm.model_config.hf_config.model_type == "gpt_oss"
            or isinstance(tokenizer, MistralTokenizer)
        ),
        plain_usage=not options.enable_prompt_tokens_details,
    )


def check_parsers(arguments: Any, front_end: FrontendSettings) -> None:
    """Loads the plugins that are allowed, and sees that the parsers named exist. Before an engine is started.

    :raises SettingError: naming the parser, and those there are.
    """
    if front_end.tool_parser_plugin:
        ToolParserManager.import_tool_parser(front_end.tool_parser_plugin)
    if arguments.reasoning_parser_plugin:
        ReasoningParserManager.import_reasoning_parser(arguments.reasoning_parser_plugin)
    asked = {
        "tool_call_parser": (front_end.tool_call_parser, ToolParserManager),
        "reasoning_parser": (arguments.reasoning_parser, ReasoningParserManager),
    }
    for name, (parser, manager) in asked.items():
        if parser and parser not in manager.list_registered():
            known = ", ".join(sorted(manager.list_registered()))
            raise SettingError(f"ENDPOINT_{name.upper()}", f"there is no '{parser[:80]}'", f"Give one of {known}.")
