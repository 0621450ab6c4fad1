"""Wraps `AsyncLLM.generate` and `encode` for vLLM's serving classes.

It counts tokens, tries grammars, gives parsers one token at a time (`current_output`), and fixes beam search.

The classes call both in the task of the request, or in tasks that it creates, which inherit its context. So a context
variable tells to which request the tokens belong, for any route and any number of sequences. Tested on 0.16.0, 0.24.0
and 0.29.0.

0.24.0 and later process a request's inputs in `generate`. A stream has begun by then, so an untried grammar is tried
here. 0.16.0 processes them before it calls `generate` (grammar_guard.py).

vLLM's beam search fails if it gets more log probabilities per step than it requested. Seen on 0.16.0 and 0.32.0. It
requests one token with the `2 * n` likeliest, and finds a beam by its position in the list of all of them
(entrypoints/openai/engine/serving.py, beam_search; later entrypoints/generate/beam_search). If the sampled token is not
among the likeliest, which happens with a temperature or with equally likely tokens, the list has one entry more. Beams
are then mixed up, and in the end an IndexError is raised.

A sequence's first output has the prompt's log probabilities. vLLM loses them where it joins that output with a later
one of another sequence of the same prompt (outputs.py, `RequestOutput.add`), and a stream that echoes the prompt then
ends in a KeyError. So each output has them. Found by the fuzz on 0.29.0.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.engine_client.client_error import PROBLEM, client_error, rejected
from handler.engine.generation.generation import TokenCounts
from handler.engine.generation.request_cost import COST
from handler.engine.v1.serving.current_output import SingleTokens

# The counts of the request that the running task answers.
COUNTED: ContextVar[TokenCounts | None] = ContextVar("counted", default=None)
Generate = Callable[..., AsyncGenerator[Any, None]]


def wrap(llm: AsyncLLM, *, by_token: bool = False) -> None:
    """Wraps `llm.generate` and `llm.encode`. Call once for an engine.

    :param by_token: whether a stream's outputs have one token each, as parsers expect them.
    """
    llm.generate = _wrapped(llm.generate, llm, by_token)
    llm.encode = _wrapped(llm.encode, llm, False)


def try_first(responses: Any, guard: Any) -> None:
    """Has the grammar of a response tried before vLLM processes its inputs, which it does within the stream (0.16.0).

    :param responses: vLLM's serving object of /v1/responses. A required tool call becomes a grammar in there.
    """
    generate = responses._generate_with_builtin_tools

    @functools.wraps(generate)
    async def tried(*, sampling_params: Any, **named: Any) -> Any:
        await guard.check(sampling_params)
        async with contextlib.aclosing(generate(sampling_params=sampling_params, **named)) as contexts:
            async for context in contexts:
                yield context

    responses._generate_with_builtin_tools = tried


def _wrapped(generate: Generate, llm: AsyncLLM, by_token: bool) -> Generate:
    @functools.wraps(generate)
    async def wrapped(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        tokens, cost, first = COUNTED.get(), COST.get(), True
        params = arguments[1] if len(arguments) > 1 else None
        constrained = isinstance(params, SamplingParams) and params.structured_outputs is not None
        singles = None
        if by_token and isinstance(params, SamplingParams) and params.output_kind is RequestOutputKind.DELTA:
            singles = SingleTokens(llm.tokenizer, params)
        guard, of_prompt = getattr(llm, "grammar_guard", None), None
        if guard is not None:
            await guard.check(params)
        # vLLM frees the slots when its generator is closed, so it is closed together with this one.
        async with contextlib.aclosing(generate(*arguments, **named)) as outputs:
            async for output in outputs:
                if tokens is not None:
                    tokens.prompt += len(output.prompt_token_ids or ()) if first else 0
                    first = False
                    if isinstance(output, RequestOutput):
                        # With DELTA each output has only new tokens, with FINAL_ONLY there is one output.
                        for completion in output.outputs:
                            tokens.output += len(completion.token_ids)
                            tokens.ended(completion.finish_reason)
                if isinstance(output, RequestOutput) and (of_prompt := output.prompt_logprobs or of_prompt):
                    output.prompt_logprobs = of_prompt
                if constrained and any(rejected(each.finish_reason, each.token_ids) for each in output.outputs):
                    raise client_error(PROBLEM, "structured_outputs")
                if cost is not None and cost.searching:
                    _limit_logprobs(output, arguments[1].logprobs)
                if singles is not None:
                    for single in singles.of(output):
                        yield single
                else:
                    yield output

    return wrapped


def _limit_logprobs(output: RequestOutput, most: int) -> None:
    for completion in output.outputs:
        for likeliest in completion.logprobs or ():
            if len(likeliest) > most:
                del likeliest[next(iter(likeliest))]  # the sampled token is first
