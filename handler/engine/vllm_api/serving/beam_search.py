"""Fixes vLLM's beam search, which fails if it gets more log probabilities per step than it requested.

Seen on 0.16.0 and 0.32.0. vLLM requests one token with the `2 * n` likeliest, and finds a beam by its position in the
list of all of them (entrypoints/openai/engine/serving.py, beam_search; later entrypoints/generate/beam_search). If the
sampled token is not among the likeliest, which happens with a temperature or with equally likely tokens, the list has
one entry more. Beams are then mixed up, and in the end an IndexError is raised.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

# Whether the running task answers a beam search request.
SEARCHING: ContextVar[bool] = ContextVar("searching", default=False)
Generate = Callable[..., AsyncGenerator[Any, None]]


def limit_logprobs(llm: AsyncLLM) -> None:
    """Makes `llm.generate` return only as many log probabilities as a beam search requests. Call once for an engine."""
    llm.generate = _limited(llm.generate)


def _limited(generate: Generate) -> Generate:
    @functools.wraps(generate)
    async def limited(prompt: Any, sampling: Any, *arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        searching = SEARCHING.get()
        async with contextlib.aclosing(generate(prompt, sampling, *arguments, **named)) as outputs:
            async for output in outputs:
                if searching:
                    for completion in output.outputs:
                        for likeliest in completion.logprobs or ():
                            if len(likeliest) > sampling.logprobs:
                                del likeliest[next(iter(likeliest))]  # the sampled token is first
                yield output

    return limited
