"""Counts the tokens of each request that vLLM's serving classes answer. Tested on 0.16.0.

The classes call `AsyncLLM.generate` and `encode` in the task of the request, or in tasks that it creates, which inherit
its context. So a context variable tells to which request the tokens belong, for any route and any number of sequences.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

from vllm.outputs import RequestOutput
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.generation.token_counts import TokenCounts

# The counts of the request that the running task answers.
COUNTED: ContextVar[TokenCounts | None] = ContextVar("counted", default=None)
Generate = Callable[..., AsyncGenerator[Any, None]]


def count(llm: AsyncLLM) -> None:
    """Makes `llm.generate` and `llm.encode` count tokens. Call once for an engine."""
    llm.generate = _counted(llm.generate)
    llm.encode = _counted(llm.encode)


def _counted(generate: Generate) -> Generate:
    @functools.wraps(generate)
    async def counted(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        tokens = COUNTED.get()
        first = True
        # vLLM frees the slots when its generator is closed, so it is closed together with this one.
        async with contextlib.aclosing(generate(*arguments, **named)) as outputs:
            async for output in outputs:
                if tokens is not None:
                    if first:
                        tokens.prompt += len(output.prompt_token_ids or ())
                        first = False
                    if isinstance(output, RequestOutput):
                        tokens.output += _new_tokens(output)
                yield output

    return counted


def _new_tokens(output: RequestOutput) -> int:
    """The number of new tokens in an output. With DELTA each output has only new ones, with FINAL_ONLY there is one."""
    return sum(len(completion.token_ids) for completion in output.outputs)
