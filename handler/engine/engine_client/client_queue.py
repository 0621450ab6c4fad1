"""Puts the gate and the queue in front of an engine client, by its public interface.

Every call of `generate` and `encode` is checked and waits for its turn, for this software and for vLLM's serving
classes. A call with several sequences (`n`) is one entry of the queue.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import count
from typing import Any

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from handler.engine.core_queue import GROUP, CoreQueue
from handler.engine.engine_client.input_gate import InputGate
from handler.engine.queue_limits import QueueLimits

Generate = Callable[..., AsyncGenerator[Any, None]]


# The first two parameters of `generate` and `encode`, which callers give by place or by one of these names.
INPUTS = (("prompt",), ("sampling_params", "pooling_params"))


class ClientQueue:
    """Make it on the engine's loop, before the client has requests.

    :param client: vLLM's `EngineClient`.
    :param dead: its exceptions for an engine that has ended. A call keeps its place then: its request's error says
        whether the core had it.
    :ivar running: how many calls wait or run.
    """

    def __init__(self, client: Any, limits: QueueLimits, gate: InputGate, dead: tuple[type[Exception], ...]) -> None:
        self.queue = CoreQueue(limits, asyncio.get_running_loop(), self._is_prefilling)
        self.running = 0
        self._gate, self._dead = gate, dead
        self._names = count()
        # By name: whether the call streams. The first set has no token yet.
        self._prefilling: set[str] = set()
        self._streams: dict[str, bool] = {}
        client.generate, client.encode = self._queued(client.generate), self._queued(client.encode)

    def _is_prefilling(self, name: str) -> bool:
        return name in self._prefilling

    def _queued(self, generate: Generate) -> Generate:
        @functools.wraps(generate)
        async def queued(*arguments: Any, **named: Any) -> AsyncGenerator[Any, None]:
            prompt, params = (
                arguments[place] if place < len(arguments) else next(named[name] for name in names if name in named)
                for place, names in enumerate(INPUTS)
            )
            sampling = params if isinstance(params, SamplingParams) else None
            ids = _field(prompt, "prompt_token_ids") or ()
            self._gate.check(ids, _field(prompt, "cache_salt") or "", sampling)
            name, tokens, self.running = str(next(self._names)), 0, self.running + 1
            alive = True
            try:
                await self.queue.turn(name, len(ids), group=GROUP.get())
                self._prefilling.add(name)
                self._streams[name] = sampling is not None and sampling.output_kind is RequestOutputKind.DELTA
                # vLLM frees the slots when its generator is closed, so it is closed together with this one.
                async with aclosing(generate(*arguments, **named)) as outputs:
                    async for output in outputs:
                        self._prefilling.discard(name)
                        if isinstance(output, RequestOutput):
                            tokens += sum(len(completion.token_ids) for completion in output.outputs)
                        self.queue.step(any(self._streams.values()))
                        yield output
                self.queue.replied(tokens)
            except self._dead:
                alive = False
                raise
            finally:
                self.running -= 1
                self._prefilling.discard(name)
                self._streams.pop(name, None)
                if alive:
                    self.queue.left(name)

        return queued


def _field(prompt: Any, name: str) -> Any:
    """A field of a prompt, which is a mapping or a message to the core."""
    return prompt.get(name) if isinstance(prompt, dict) else getattr(prompt, name, None)
