"""Requests to vLLM's engine: sampling parameters, prompts and errors. Tested on 0.13.0, 0.16.0, 0.24.0 and 0.29.0."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

import vllm
from vllm import SamplingParams
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from handler.engine.generation.generation import Generation, Position, Sampling, Score, Scores, StageListener
from handler.engine.vllm_api.client_error import CLIENT_ERROR
from handler.engine.vllm_api.grammar.grammar_rejection import PROBLEM, REJECTED, is_constrained
from handler.errors import EndpointError, EngineFailed, GenerationFailed, InvalidField

try:
    # 0.21.0, 0.24.0 and 0.32.0: the form of a prompt that vLLM's renderer makes. Other forms are deprecated, and 0.32.0
    # passes them to a thread first.
    from vllm.inputs import tokens_input
except ImportError:  # 0.13.0, 0.16.0
    tokens_input = None

logger = logging.getLogger(__name__)

# Whether tokens take the direct path from the core's socket to their sink (`vllm_api.tokens`). The path uses vLLM's
# internals, so it is limited to the versions on which its tests run.
DIRECT = vllm.__version__.startswith(("0.16.", "0.24.", "0.29.", "0.32."))
if DIRECT:
    from handler.engine.vllm_api.tokens import sink_collector

# vLLM's exceptions for a wrong request. On 0.13.0 they are a ValueError. On 0.16.0 and 0.24.0 some are a
# `VLLMValidationError`, a ValueError that names the parameter and repeats it at the end of its text. On 0.29.0 that is
# a `VLLMClientError`, which is not a ValueError.
REFUSALS: tuple[type[Exception], ...] = (ValueError, CLIENT_ERROR)

# The fields of `Sampling` that vLLM has under the same name and in the same form.
SAMPLING_FIELDS = tuple(
    name
    for name in Sampling.__slots__
    if name not in ("max_tokens", "max_tokens_field", "stop", "stop_token_ids", "grammar")
)

# 0.16.0 and later can skip copying parameters that nobody else holds. 0.13.0 always copies them.
OWNED: Mapping[str, bool] = {"skip_clone": True} if "skip_clone" in inspect.signature(SamplingParams).parameters else {}


def sampling_params(sampling: Sampling, max_tokens: int, defaults: Mapping[str, float], stream: bool) -> SamplingParams:
    """vLLM's sampling parameters, checked by vLLM.

    :raises InvalidField: vLLM rejects a parameter.
    """
    given, grammar = {name: getattr(sampling, name) for name in SAMPLING_FIELDS}, sampling.grammar
    try:
        return SamplingParams(
            **{name: defaults.get(name) if value is None else value for name, value in given.items()},
            max_tokens=max_tokens,
            stop=list(sampling.stop),
            stop_token_ids=list(sampling.stop_token_ids),
            structured_outputs=None if grammar is None else StructuredOutputsParams(**{grammar.kind: grammar.text}),
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
            **OWNED,
        )
    except REFUSALS as error:
        raise as_invalid_field(error, "sampling parameters") from None


async def add_request(
    engine: AsyncLLM, generation: Generation, params: SamplingParams, sink: StageListener, lora: Any = None
) -> str | None:
    """Queues a request whose outputs go directly to the sink, from the engine's output handler.

    vLLM gives each output to a collector, which wakes a task for each token. Here the collector's `put` is replaced, so
    that a token costs no task switch.

    :returns: vLLM's internal id, which `abort` needs. None if the sink ended before the engine got the request.
    """
    scores, grammar = generation.scores, generation.sampling.grammar
    rejection = InvalidField(grammar.field, PROBLEM) if grammar and is_constrained(engine, params) else None
    try:
        guard = getattr(engine, "grammar_guard", None)
        if guard is not None:
            await guard.check(params)
        ids = list(generation.prompt)
        prompt = {"prompt_token_ids": ids} if tokens_input is None else tokens_input(ids)
        if scores is None and getattr(engine, "token_path", None) is not None:
            return await sink_collector.add_request(
                engine, generation, prompt, params, sink, as_endpoint_error, lora, rejection
            )
        traced = {} if generation.trace is None else {"trace_headers": generation.trace}
        collector = await engine.add_request(generation.request_id, prompt, params, lora_request=lora, **traced)
    except REFUSALS as error:
        if grammar is None:
            raise
        raise InvalidField(grammar.field, reason(error)) from None

    def put(output: RequestOutput | Exception) -> None:
        if isinstance(output, Exception):
            sink.fail(as_endpoint_error(output))
        else:
            completion = output.outputs[0]
            if rejection is not None and completion.finish_reason == REJECTED:
                sink.fail(rejection)
                return
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


def as_invalid_field(error: Exception, otherwise: str) -> InvalidField:
    """The error for the client.

    :param otherwise: the field to name if vLLM names none of the request's fields.
    """
    message = reason(error)
    named = getattr(error, "parameter", None) or message.split(" ", 1)[0].strip("`'\"")
    return InvalidField(named if named in Sampling.__slots__ else otherwise, message)


def reason(error: Exception) -> str:
    """The text of vLLM's error, without the parameter and the value that later versions append."""
    return (str(error.args[0]) if error.args else str(error)).rstrip(".")
