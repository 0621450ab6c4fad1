"""Makes vLLM's OpenAI serving classes over an engine, with the configured parsers. Tested on 0.16.0."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from vllm.entrypoints.openai.responses import serving as responses_serving
from vllm.renderers.params import TokenizeParams
from vllm.tokenizers import TokenizerLike
from vllm.tokenizers.mistral import MistralTokenizer
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.api_routes import Traits
from handler.engine.frontend_args import FrontendSettings
from handler.engine.v1.accelerators import Accelerators
from handler.engine.v1.serving import audio_files, generate_wrapper, response_events, serving_log
from handler.engine.v1.serving.reply_building import build_apart
from handler.engine.v1.serving.serving_classes import VllmServing

try:
    from vllm.entrypoints.openai.api_server import init_app_state
    from vllm.entrypoints.openai.cli_args import FrontendArgs
except ImportError:  # 0.29.0
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

try:
    from vllm.entrypoints.pooling.utils import enable_scoring_api  # 0.24.0 and later, whose models have no task for it
except ImportError:
    enable_scoring_api = None

try:
    from vllm.entrypoints.utils import get_max_tokens  # 0.16.0
except ImportError:
    get_max_tokens = None

TEMPLATE: Final = "default_template_kwargs"
TOKEN_TYPES: Final = "token_type_ids"
ENCODE_KWARGS: Final = TokenizeParams.get_encode_kwargs
# No host has this name (RFC 6761). With an empty list of allowed domains, vLLM would fetch media from any host.
NO_DOMAIN: Final = "none.invalid"
# Messages and tools that the loop renders by itself: a thread takes longer to wake.
FEW: Final = 32


async def start(
    llm: AsyncLLM,
    arguments: Any,
    front_end: FrontendSettings,
    max_output_tokens: int | None = None,
    *,
    parts: Accelerators,
) -> VllmServing:
    """Creates vLLM's serving objects.

    :param arguments: the engine arguments that `engine_arguments.engine_args` made.
    :param max_output_tokens: the output tokens of a request that gives no number. None: as many as the context has
        room for.
    :param parts: what this version is run with.
    """
    serving_log.shorten_errors()
    parses = bool(front_end.tool_call_parser or llm.vllm_config.structured_outputs_config.reasoning_parser)
    generate_wrapper.wrap(llm, by_token=parses)
    responses_serving.ResponsesResponse = response_events.NamedResponse
    if not llm.model_config.allowed_media_domains:
        llm.model_config.allowed_media_domains = [NO_DOMAIN]
    tasks = await llm.get_supported_tasks()
    options = Namespace()
    for settings in (FrontendArgs(), front_end):  # ours replace vLLM's defaults
        for option in dataclasses.fields(settings):
            setattr(options, option.name, getattr(settings, option.name))
    options.model = arguments.model
    options.served_model_name = arguments.served_model_name
    options.enable_log_requests = arguments.enable_log_requests
    options.disable_log_stats = arguments.disable_log_stats
    options.structured_outputs_config = llm.vllm_config.structured_outputs_config
    options.log_error_stack = False
    state = SimpleNamespace()
    await init_app_state(llm, state, options, tasks)
    if llm.tokenizer is not None and hasattr(llm.renderer, "get_async_tokenizer"):  # 0.24 does not have it
        # vLLM encodes prompts in a thread, and its parsers encode on the loop. With the same tokenizer, one changes
        # its truncation while the other works, and a valid request fails with "Already borrowed".
        encoder = llm.renderer.get_async_tokenizer()
        encoder.tokenizer = copy.deepcopy(encoder.tokenizer)
        # Other renderers tokenize as they render, or have a thread of their own.
        if type(llm.renderer).__name__ == "HfRenderer" and not llm.model_config.is_multimodal_model:
            render_in_threads(llm.renderer)
    if max_output_tokens is not None:
        _cap(state, max_output_tokens)
    fill_template_defaults(state, front_end.default_chat_template_kwargs)
    build_apart(state)
    for name in ("openai_serving_transcription", "openai_serving_translation"):
        if hasattr(serving := getattr(state, name, None), "_decode_and_chunk_speech_async"):  # 0.24.0 and later
            audio_files.reject_short(serving)
    for name in ("chat_completion", "completion", "responses") if get_max_tokens and "generate" in tasks else ():
        vars(sys.modules[f"vllm.entrypoints.openai.{name}.serving"])["get_max_tokens"] = _max_tokens
    TokenizeParams.get_encode_kwargs = _encode_kwargs
    guard = getattr(llm, "grammar_guard", None)
    responses = getattr(state, "openai_serving_responses", None)  # a pooling model has none
    if responses is not None:
        responses._convert_generation_error_to_streaming_response = response_events.fail
    if guard is not None and hasattr(responses, "_generate_with_builtin_tools"):
        generate_wrapper.try_first(responses, guard)
    if parts.tool_streams and front_end.tool_call_parser:
        _complete_tool_calls(state, front_end.tool_call_parser)
    _omit_token_types(llm)
    return VllmServing(llm, state, _traits(llm, options, tasks), front_end.default_chat_template_kwargs)


def fill_template_defaults(state: SimpleNamespace, defaults: Mapping[str, Any]) -> None:
    """Gives responses the default arguments of the chat template. vLLM 0.16.0 gives them to chats only.

    Other requests have a field for them: see `VllmServing.request`.
    """

    def filled(own: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return own(*arguments, **{name: defaults if name == TEMPLATE else value for name, value in named.items()})

    for serving in vars(state).values():
        if hasattr(serving, "_preprocess_chat"):
            serving._preprocess_chat = partial(filled, serving._preprocess_chat)


def _omit_token_types(llm: AsyncLLM) -> None:
    """Keeps token types from models that have none.

    vLLM gives a pair's token types to any model whose tokenizer makes them, and a Llama then ends the engine: "got an
    unexpected keyword argument 'token_type_ids'" (0.16.0, pooling/score/serving.py; 0.24.0 to 0.32.0,
    pooling/scoring/io_processor.py). Since 0.24.0 the tokenizer is a pool of copies, so its attributes say nothing.
    """
    tokenizer = llm.tokenizer
    has_types = bool(getattr(llm.model_config.hf_config, "type_vocab_size", 0))
    if not has_types and TOKEN_TYPES in getattr(tokenizer, "model_input_names", ()):
        called: Any = type(tokenizer)

        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            return called.__call__(self, *arguments, **{"return_token_type_ids": False, **named})

        tokenizer.__class__ = type(called.__name__, (called,), {"__call__": call})


def _complete_tool_calls(state: SimpleNamespace, parser: str) -> None:
    """Corrects the streams of the tool parser. Its interface is that of 0.16.0."""
    serving = getattr(state, "openai_serving_chat", None)
    if serving is not None and serving.tool_parser is not None:
        from handler.engine.v1.serving import streamed_tools  # its imports are those of 0.16.0

        serving.tool_parser = streamed_tools.complete(parser, serving.tool_parser)


def _cap(state: SimpleNamespace, tokens: int) -> None:
    """Limits the default number of output tokens."""
    for name in ("chat", "completion", "responses", "transcription", "translation"):
        serving = getattr(state, f"openai_serving_{name}", None)
        if serving is not None:
            own = serving.default_sampling_params
            serving.default_sampling_params = {**own, "max_tokens": min(tokens, own.get("max_tokens", tokens))}


def _max_tokens(context: int, requested: int | None, prompt: int, defaults: dict[str, Any]) -> int:
    """As vLLM's, whose default also cuts what a request asks for (0.16.0)."""
    return int(get_max_tokens(context, requested, prompt, defaults if requested is None else {}))


def _encode_kwargs(params: TokenizeParams) -> dict[str, Any]:
    """As vLLM's, which cuts a prompt to the context before it counts the tokens for its error (0.16.0 to 0.29.0).

    That saves nothing: the tokenizer has encoded the whole prompt by then.
    """
    cut = params.truncate_prompt_tokens is not None
    return {**ENCODE_KWARGS(params), **({} if cut else {"truncation": False, "max_length": None})}


def _traits(llm: AsyncLLM, options: Namespace, tasks: tuple[str, ...]) -> Traits:
    tokenizer: TokenizerLike | None = llm.tokenizer
    scores = "generate" not in tasks and enable_scoring_api and enable_scoring_api(tasks, llm.model_config)
    return Traits(
        tasks=frozenset((*tasks, "score") if scores else tasks),
        multimodal=bool(llm.model_config.is_multimodal_model),
        priorities=llm.vllm_config.scheduler_config.policy == "priority",
        plain_chat=not (
            options.structured_outputs_config.reasoning_parser
            or llm.model_config.hf_config.model_type == "gpt_oss"
            or isinstance(tokenizer, MistralTokenizer)
        ),
        plain_usage=not options.enable_prompt_tokens_details,
    )


def render_in_threads(renderer: Any) -> None:
    """Makes a renderer of vLLM render long conversations in a thread.

    vLLM 0.16 renders the template in a coroutine (renderers/hf.py, `render_messages_async`). 1,000 messages hold the
    loop for 8 ms (measured), in which no other request gets a token.
    """
    in_thread, on_loop = renderer.render_messages, renderer.render_messages_async

    async def rendered(messages: list[Any], params: Any) -> Any:
        tools = params.chat_template_kwargs.get("tools") or ()
        if len(messages) + len(tools) <= FEW:
            return await on_loop(messages, params)
        return await asyncio.to_thread(in_thread, messages, params)

    renderer.render_messages_async = rendered
