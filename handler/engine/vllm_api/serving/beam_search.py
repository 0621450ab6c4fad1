"""vLLM's beam search gets as many log probabilities a step as it asks for. Seen on 0.16.0 and 0.32.0.

It asks for one token with the `2 * n` likeliest, and then tells the beams apart by a place in all of them together
(entrypoints/openai/engine/serving.py, beam_search; later entrypoints/generate/beam_search). The token that was drawn
comes beside the likeliest where it is none of them: at a temperature, or where several are equally likely. One more
than was asked for puts beams in the place of others, and in the end raises an IndexError.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

# The running task answers a request for beams.
SEARCHING: ContextVar[bool] = ContextVar("searching", default=False)
Generate = Callable[..., AsyncGenerator[Any, None]]


def even(llm: AsyncLLM) -> None:
    """From now on what beams get from `llm.generate` has just the log probabilities asked for. Once an engine."""
    llm.generate = _evened(llm.generate)


def _evened(generate: Generate) -> Generate:
    @functools.wraps(generate)
    async def evened(prompt: Any, sampling: Any, *arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        searching = SEARCHING.get()
        async with contextlib.aclosing(generate(prompt, sampling, *arguments, **named)) as outputs:
            async for output in outputs:
                if searching:
                    for completion in output.outputs:
                        for likeliest in completion.logprobs or ():
                            if len(likeliest) > sampling.logprobs:
                                del likeliest[next(iter(likeliest))]  # what was drawn is first
                yield output

    return evened
