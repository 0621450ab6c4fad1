"""A stand-in for vLLM's core that generates a given text: a prompt is `STEP:HEX`, the text's bytes as hexadecimal.

Everything in front of the core is vLLM's own: the chat template, the prompt's tokens, the detokenizer, the parsers and
the serving classes. The text is hidden from them in the prompt, because some parsers look for their marks in it.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM


class ReplayCore:
    """What `AsyncLLM` and `Engine` use of a core's client.

    STEP is how many tokens each step of the core has, as with speculative decoding, or where a consumer is slow.

    :ivar llm: set by the maker.
    """

    llm: AsyncLLM
    engine_ranks_managed = (0,)
    resources = SimpleNamespace(engine_dead=False)

    def __init__(self) -> None:
        self._outputs: asyncio.Queue[EngineCoreOutputs] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    async def get_output_async(self) -> EngineCoreOutputs:
        return await self._outputs.get()

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        task = asyncio.create_task(self._play(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, request: EngineCoreRequest) -> None:
        tokenizer: Any = self.llm.tokenizer
        step, _, script = tokenizer.decode(request.prompt_token_ids).partition(":")
        ids = tokenizer.encode(bytes.fromhex(script).decode(), add_special_tokens=False)
        ids.append(request.eos_token_id)
        size = int(step)
        for place in range(0, len(ids), size):
            last = place + size >= len(ids)
            output = EngineCoreOutput(
                request.request_id, ids[place : place + size], finish_reason=FinishReason.STOP if last else None
            )
            await self._taken(request.request_id)
            self._outputs.put_nowait(EngineCoreOutputs(outputs=[output]))
            await asyncio.sleep(0)

    async def _taken(self, name: str) -> None:
        """Waits until the serving classes have taken the step before, so that no two steps become one."""
        while not self._outputs.empty():
            await asyncio.sleep(0)
        state = self.llm.output_processor.request_states.get(name)
        while state is not None and state.queue is not None and state.queue.output is not None:
            await asyncio.sleep(0)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        pass

    async def is_sleeping_async(self) -> bool:
        return False

    def shutdown(self) -> None:
        pass
