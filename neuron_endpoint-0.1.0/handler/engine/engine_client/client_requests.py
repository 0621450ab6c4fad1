"""Requests to vLLM's `EngineClient` by its public interface: sampling parameters, errors, and a task for each request.

Tested on 0.9.1, 0.11.0, 0.16.0, 0.24.0, 0.29.0 and 0.32.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from vllm import SamplingParams
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind

from handler.engine.engine_client.client_error import CLIENT_ERROR
from handler.engine.generation.generation import Generation, Grammar, Position, Sampling, Score, StageListener
from handler.engine.generation.token_pieces import token_pieces
from handler.errors import EndpointError, EngineFailed, GenerationFailed, InvalidField

logger = logging.getLogger(__name__)

# vLLM's exceptions for a wrong request: a ValueError, and since 0.29.0 a `VLLMClientError`, which is none. Since 0.16.0
# some name the parameter and repeat it at the end of their text.
REFUSALS: tuple[type[Exception], ...] = (ValueError, CLIENT_ERROR)

# vLLM's own defaults on the OpenAI routes, for values that neither the request nor generation_config.json sets
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# The fields of `Sampling` that vLLM has under the same name and in the same form.
SAMPLING_FIELDS = tuple(
    name
    for name in Sampling.__slots__
    if name not in ("max_tokens", "max_tokens_field", "stop", "stop_token_ids", "grammar")
)

# The finish reason of a request whose grammar has rejected a token. A grammar and other fields that forbid tokens may
# leave none that both allow. vLLM then samples any token. Since 0.24.0 the scheduler ends such a request with "error"
# (v1/core/sched/scheduler.py). 0.16.0 goes on without the grammar. The only other reason for that end is a key-value
# cache that did not arrive from another instance.
REJECTED = "error"
PROBLEM = (
    "no token is left that the grammar allows: leave out allowed_token_ids, bad_words, logit_bias and min_tokens, "
    "or change the grammar"
)


def sampling_params(
    sampling: Sampling, max_tokens: int, defaults: Mapping[str, float], stream: bool, **further: Any
) -> SamplingParams:
    """vLLM's sampling parameters, checked by vLLM.

    :param further: what only some versions have.
    :raises InvalidField: vLLM rejects a parameter.
    """
    given = {name: getattr(sampling, name) for name in SAMPLING_FIELDS}
    try:
        return SamplingParams(
            **{name: defaults.get(name) if value is None else value for name, value in given.items()},
            max_tokens=max_tokens,
            stop=list(sampling.stop),
            stop_token_ids=list(sampling.stop_token_ids),
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
            **further,
        )
    except REFUSALS as error:
        raise as_invalid_field(error, "sampling parameters") from None


class ClientRequests:
    """The requests that this software makes to one engine client. Use it on the engine's loop only.

    :param generate: the client's own method.
    :param dead: vLLM's exceptions for an engine that has ended.
    :param grammars_end: whether an end with "error" is a grammar's.
    """

    def __init__(
        self,
        generate: Callable[..., AsyncGenerator[Any, None]],
        dead: tuple[type[Exception], ...],
        tokenizer: Any,
        *,
        grammars_end: bool = True,
    ) -> None:
        self._generate = generate
        self._tokenizer = tokenizer
        self._dead = dead
        self._grammars_end = grammars_end
        self._running: dict[str, tuple[asyncio.Task[None], StageListener]] = {}

    def begin(
        self, generation: Generation, prompt: object, params: SamplingParams, sink: StageListener, lora: Any
    ) -> str:
        """Starts a request, and returns its name for `abort`."""
        name = generation.request_id
        task = asyncio.get_running_loop().create_task(self._run(generation, prompt, params, sink, lora))
        self._running[name] = task, sink
        task.add_done_callback(lambda ended: self._running.pop(name, None))
        return name

    def abort(self, name: str) -> bool:
        """Ends a request. vLLM frees its slot when its generator ends. False: it is none of these."""
        task, _ = self._running.get(name, (None, None))
        return task is not None and task.cancel()

    def fail_all(self, error: EndpointError) -> None:
        for task, sink in list(self._running.values()):
            sink.fail(error)
            task.cancel()

    def __len__(self) -> int:
        return len(self._running)

    async def _run(
        self, generation: Generation, prompt: object, params: SamplingParams, sink: StageListener, lora: Any
    ) -> None:
        grammar, traced = generation.sampling.grammar, {}
        if generation.trace is not None:
            traced["trace_headers"] = generation.trace
        try:
            made = self._generate(prompt, params, generation.request_id, lora_request=lora, **traced)
            async with aclosing(made) as outputs:
                async for output in outputs:
                    self._push(output, generation, sink)
        except Exception as error:
            sink.fail(self.as_endpoint_error(error, grammar))

    def _push(self, output: RequestOutput, generation: Generation, sink: StageListener) -> None:
        completion: CompletionOutput = output.outputs[0]
        grammar, ids = generation.sampling.grammar, completion.token_ids
        rejection = self.rejection(grammar)
        if rejection is not None and completion.finish_reason == REJECTED:
            sink.fail(rejection)
            return
        parts = [(completion.text, ids)]
        if generation.apart and len(ids) > 1:  # vLLM joins the outputs of several steps that nobody has taken yet
            parts = [(text, [token]) for text, token in token_pieces(self._tokenizer, completion.text, ids)]
        prompt, place = output.prompt_logprobs, 0
        for number, (text, tokens) in enumerate(parts, 1):
            if generation.scores is not None:
                entries = (completion.logprobs or ())[place : place + len(tokens)]
                of_prompt = None if not prompt else [None if entry is None else _position(entry) for entry in prompt]
                generation.scores.receive([_position(entry) for entry in entries], of_prompt)
                prompt, place = None, place + len(tokens)
            ended = (completion.finish_reason, completion.stop_reason) if number == len(parts) else (None, None)
            sink.push(text, tokens, *ended)

    def rejection(self, grammar: Grammar | None) -> EndpointError | None:
        """What a request with a grammar gets if it ends with `REJECTED`."""
        return InvalidField(grammar.field, PROBLEM) if grammar is not None and self._grammars_end else None

    def as_endpoint_error(self, error: object, grammar: Grammar | None = None) -> EndpointError:
        """The endpoint error for an exception that the engine raised for one request.

        :param grammar: that of the request, which is what vLLM rejects if it rejects a request that has one.
        """
        if isinstance(error, EndpointError):
            return error
        if isinstance(error, self._dead):
            return EngineFailed("its process ended")
        if isinstance(error, REFUSALS):
            return InvalidField(grammar.field, reason(error)) if grammar else as_invalid_field(error, "prompt")
        logger.error("a request failed in the engine: %s", type(error).__name__)
        return GenerationFailed(type(error).__name__)


def _position(entry: Mapping[int, Any]) -> Position:
    """vLLM's first entry for a position is its token (vllm/logprobs.py)."""
    return [Score(token, found.logprob, found.decoded_token or "") for token, found in entry.items()]


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
