"""vLLM's engine: its requests, its limits and its health. Tested on 0.13.0, 0.16.0 and 0.24.0.

vLLM's Python interfaces changed between 0.13 and 0.33. Only this package uses them, and a comment names the version
wherever versions differ. Importing this module imports vLLM, which takes 8 to 11 s: import it inside functions, after
the port is bound.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Mapping
from typing import Any

import vllm
from prometheus_client import CollectorRegistry
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.engine.generation.generation import Generation, Grammar, Position, Sampling, Score, Scores, StageListener
from handler.engine.prefill_pace import PaceLimit
from handler.engine.vllm_api.core import chat_templates, engine_metrics, grammar_guard
from handler.engine.vllm_api.core.core_processes import engine_pids
from handler.engine.vllm_api.core.request_errors import REFUSALS, as_invalid_field, reason
from handler.engine.vllm_api.tokens.token_prompt import token_prompt
from handler.errors import EndpointError, EngineFailed, GenerationFailed, InvalidField

logger = logging.getLogger(__name__)

# Whether tokens take the direct path from the core's socket to their sink (`vllm_api.tokens`). The path uses vLLM's
# internals, so it is limited to the version for which it was written.
DIRECT = vllm.__version__.startswith("0.16.")
if DIRECT:
    from handler.engine.vllm_api.tokens import sink_collector, token_path

# vLLM's own defaults on the OpenAI routes, for values that neither the request nor generation_config.json sets
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# 0.16.0 and later give a request an internal id, and abort it by that id. 0.13.0 uses the id of the caller.
ABORT: Mapping[str, bool] = {"internal": True} if "internal" in inspect.signature(AsyncLLM.abort).parameters else {}
# 0.16.0 and later can skip copying parameters that nobody else holds. 0.13.0 always copies them.
OWNED: Mapping[str, bool] = {"skip_clone": True} if "skip_clone" in inspect.signature(SamplingParams).parameters else {}


def build_engine(arguments: AsyncEngineArgs, pace: PaceLimit | None = None, *, further: bool = False) -> AsyncLLM:
    """Starts an engine, whose core is a process of its own. Call on the loop that will serve it.

    :param pace: limits how many prompts are prefilled at the same time, on versions with the direct token path.
    :param further: this process has other engines already, whose metrics must be kept.
    :raises Exception: any error that vLLM raises when it cannot start. The core has printed the reason.
    """
    if further:
        engine, registry = engine_metrics.with_own_registry(lambda: AsyncLLM.from_engine_args(arguments))
        engine.metrics_registry = registry
    else:
        engine = AsyncLLM.from_engine_args(arguments)
    if DIRECT:
        token_path.TokenPath.install(engine, pace)
    return engine


def guard_grammars(engine: AsyncLLM) -> None:
    """Has every grammar tried in a process that may die, before the core compiles it."""
    grammar_guard.install(engine)


def metrics_registry(engine: AsyncLLM) -> CollectorRegistry | None:
    """The registry with vLLM's metrics of a further engine. None: they are in prometheus_client's global registry."""
    return getattr(engine, "metrics_registry", None)


def max_model_len(engine: AsyncLLM) -> int:
    return int(engine.model_config.max_model_len)


def max_num_seqs(engine: AsyncLLM) -> int:
    """How many sequences are decoded at the same time."""
    return int(engine.vllm_config.scheduler_config.max_num_seqs)


def caches_prefixes(engine: AsyncLLM) -> bool:
    """Whether prefix caching is on."""
    return bool(engine.vllm_config.cache_config.enable_prefix_caching)


def takes_adapters(engine: AsyncLLM) -> bool:
    """Whether the engine was started with LoRA."""
    return engine.vllm_config.lora_config is not None


def limit_lengths(engine: AsyncLLM, prompt: int | None, sequence: int | None) -> None:
    """Limits lengths in vLLM's own checks to those of the compiled graphs. vLLM's serving classes use these checks.

    It changes this process's copy of the configuration only; the core has its own. Call before the serving classes are
    made.

    :param prompt: the longest prompt in tokens. None: the context.
    :param sequence: the longest sequence of prompt and output. None: the context.
    """
    if sequence is not None:
        engine.model_config.max_model_len = min(sequence, max_model_len(engine))
    if prompt is None:
        return
    process = engine.input_processor.process_inputs

    def checked(*arguments: Any, **named: Any) -> Any:
        request = process(*arguments, **named)
        tokens = len(request.prompt_token_ids or ())
        if tokens > prompt:
            raise ValueError(f"The prompt has {tokens} tokens, over the context length of {prompt} that was compiled.")
        return request

    engine.input_processor.process_inputs = checked


def vocab_size(engine: AsyncLLM) -> int:
    return int(engine.model_config.get_vocab_size())


def allowed_media_domains(engine: AsyncLLM) -> tuple[str, ...]:
    """The hosts from which media may be fetched."""
    return tuple(engine.model_config.allowed_media_domains or ())


def sampling_defaults(engine: AsyncLLM) -> dict[str, float]:
    """The default sampling parameters: the model's own (generation_config.json), else vLLM's."""
    return {**SAMPLING_DEFAULTS, **engine.model_config.get_diff_sampling_param()}


def default_max_tokens(engine: AsyncLLM) -> int | None:
    """The number of output tokens that the model's generation_config.json sets, if it does."""
    cap = engine.model_config.get_diff_sampling_param().get("max_tokens")
    return None if cap is None else int(cap)


def sampling_params(sampling: Sampling, max_tokens: int, defaults: Mapping[str, float], stream: bool) -> SamplingParams:
    """vLLM's sampling parameters, checked by vLLM.

    :raises InvalidField: vLLM rejects a parameter.
    """

    def value_of(name: str) -> Any:
        value = getattr(sampling, name)
        return defaults[name] if value is None else value

    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=sampling.min_tokens,
            temperature=value_of("temperature"),
            top_p=value_of("top_p"),
            top_k=value_of("top_k"),
            min_p=value_of("min_p"),
            repetition_penalty=value_of("repetition_penalty"),
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            seed=sampling.seed,
            stop=list(sampling.stop),
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=sampling.ignore_eos,
            include_stop_str_in_output=sampling.include_stop_str_in_output,
            skip_special_tokens=sampling.skip_special_tokens,
            spaces_between_special_tokens=sampling.spaces_between_special_tokens,
            logprobs=sampling.logprobs,
            prompt_logprobs=sampling.prompt_logprobs,
            structured_outputs=None if sampling.grammar is None else _structured_outputs(sampling.grammar),
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
            **OWNED,
        )
    except REFUSALS as error:
        raise as_invalid_field(error, "sampling parameters") from None


def _structured_outputs(grammar: Grammar) -> StructuredOutputsParams:
    if grammar.kind == "regex":
        return StructuredOutputsParams(regex=grammar.text)
    return StructuredOutputsParams(json=grammar.text)


async def add_request(
    engine: AsyncLLM, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
) -> str | None:
    """Queues a request whose outputs go directly to the sink, from the engine's output handler.

    vLLM gives each output to a collector, which wakes a task for each token. Here the collector's `put` is replaced, so
    that a token costs no task switch.

    :returns: vLLM's internal id, which `abort` needs. None if the sink ended before the engine got the request.
    """
    scores = generation.scores
    try:
        guard = getattr(engine, "grammar_guard", None)
        if guard is not None:
            await guard.check(params)
        prompt = token_prompt(list(generation.prompt))
        if DIRECT and scores is None:
            return await sink_collector.add_request(
                engine,
                generation.request_id,
                prompt,
                params,
                sink,
                as_endpoint_error,
                lora,
                generation.times,
                generation.trace,
                generation.apart,
            )
        traced = {} if generation.trace is None else {"trace_headers": generation.trace}
        collector = await engine.add_request(generation.request_id, prompt, params, lora_request=lora, **traced)
    except REFUSALS as error:
        grammar = generation.sampling.grammar
        if grammar is None:
            raise
        raise InvalidField(grammar.field, reason(error)) from None

    def put(output: RequestOutput | Exception) -> None:
        if isinstance(output, Exception):
            sink.fail(as_endpoint_error(output))
        else:
            completion = output.outputs[0]
            if scores is not None:
                _send_scores(scores, output, completion)
            sink.push(completion.text, completion.token_ids, completion.finish_reason, completion.stop_reason)

    earlier, collector.output = collector.output, None  # there was no await since, so no output can come between
    collector.put = put
    if earlier is not None:
        put(earlier)
    return str(getattr(collector, "request_id", generation.request_id))  # 0.13.0 keeps the caller's id


def _send_scores(scores: Scores, output: RequestOutput, completion: CompletionOutput) -> None:
    """Sends the log probabilities of an output. vLLM's first entry for a position is its token (vllm/logprobs.py)."""
    prompt = output.prompt_logprobs
    scores.receive(
        [_position(entry) for entry in completion.logprobs or ()],
        None if not prompt else [None if entry is None else _position(entry) for entry in prompt],
    )


def _position(entry: Mapping[int, Any]) -> Position:
    return [Score(token, found.logprob, found.decoded_token or "") for token, found in entry.items()]


async def abort(engine: AsyncLLM, internal_id: str) -> None:
    await engine.abort(internal_id, **ABORT)


def unfinished(engine: AsyncLLM) -> int:
    """How many requests hold a slot or wait for one, in this process's part of the engine."""
    found = int(engine.output_processor.get_num_unfinished_requests())
    pace = engine.token_path.pace if DIRECT else None
    return found if pace is None else found + pace.waiting


async def probe(engine: AsyncLLM) -> None:
    """A round trip through the core's busy loop, which answers between two steps. The answer proves that it runs."""
    await engine.engine_core.is_sleeping_async()


def is_dead(engine: AsyncLLM) -> bool:
    return bool(engine.errored)


def core_pids(engine: AsyncLLM) -> tuple[int, ...]:
    """The process ids of the engine's cores and of their workers."""
    return engine_pids(engine)


def shutdown(engine: AsyncLLM) -> None:
    guard = getattr(engine, "grammar_guard", None)
    if guard is not None:
        guard.close()
    engine.shutdown()


def as_endpoint_error(error: object) -> EndpointError:
    """The endpoint error for an exception that the engine raised for one request."""
    if isinstance(error, EndpointError):
        return error
    if isinstance(error, EngineDeadError):
        return EngineFailed("its process ended")
    if isinstance(error, REFUSALS):
        return as_invalid_field(error, "prompt")
    logger.error("a request failed in the engine: %s", type(error).__name__)
    return GenerationFailed(type(error).__name__)


def fail_all(engine: AsyncLLM, error: EndpointError) -> None:
    """Ends every request with the same error. Call on the loop."""
    for state in list(engine.output_processor.request_states.values()):
        if state.queue is not None:
            state.queue.put(error)
    if DIRECT and engine.token_path.pace is not None:
        engine.token_path.pace.fail(error)


def own_tokenizer(engine: AsyncLLM) -> Any:
    """A copy of the tokenizer for this software's threads.

    vLLM changes the truncation of its own while it works, which then raises "Already borrowed" in other threads.
    """
    return copy.deepcopy(engine.tokenizer)


def longest_token(tokenizer: Any) -> int:
    """The length of the vocabulary's longest token, in characters, or in bytes for a vocabulary of bytes."""
    return max(map(len, tokenizer.get_vocab()))


def chat_template(engine: AsyncLLM, tokenizer: Any, configured: str | None = None) -> str | None:
    return chat_templates.chat_template(tokenizer, engine.model_config, configured)


def content_as_parts(engine: AsyncLLM, tokenizer: Any, template: str | None, content_format: str = "auto") -> bool:
    return chat_templates.content_as_parts(tokenizer, template, engine.model_config, content_format)
