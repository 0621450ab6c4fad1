"""Counts what vLLM's serving classes ask of the engine, by the request they do it for. Seen on 0.16.0.

They call `AsyncLLM.generate` and `encode` in the task that awaits them, or in tasks that it makes, which inherit its
context: so a context variable says whose tokens they are, whatever the route and however many sequences.
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

# Of the request that the running task answers.
COUNTED: ContextVar[TokenCounts | None] = ContextVar("counted", default=None)
Generate = Callable[..., AsyncGenerator[Any, None]]


def count(llm: AsyncLLM) -> None:
    """From now on what goes through `llm.generate` and `llm.encode` is counted. Once an engine."""
    llm.generate = _counted(llm.generate)
    llm.encode = _counted(llm.encode)


def _counted(generate: Generate) -> Generate:
    @functools.wraps(generate)
    async def counted(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
        tokens = COUNTED.get()
        first = True
        # Closed with this one: vLLM frees the slots when its generator is closed.
        async with contextlib.aclosing(generate(*arguments, **named)) as outputs:
            async for output in outputs:
                if tokens is not None:
                    if first:
                        tokens.prompt += len(output.prompt_token_ids or ())
                        first = False
                    if isinstance(output, RequestOutput):
                        tokens.output += _made(output)
                yield output

    return counted


def _made(output: RequestOutput) -> int:
    """What is new in an output: with DELTA each brings what the last has not, with FINAL_ONLY there is one."""
    return sum(len(completion.token_ids) for completion in output.outputs)
