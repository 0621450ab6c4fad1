"""What `model_fn` gives by default: the engine, to call from hooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import msgspec

from handler.custom_code.request_deadline import timing
from handler.engine.engine import Engine
from handler.engine.engine_request import EngineRequest
from handler.engine.generation.generation import Generation
from handler.errors import EndpointError, InvalidField
from handler.schemas import dispatch
from handler.schemas.openai import chat, completion
from handler.schemas.reply import AnyCall, Call

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
CompletionStep = tuple[str, Sequence[int], str | None, int | str | None]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `finish_reason` is `stop` or `length`; `stop_reason` the stop string or token id that ended it."""

    text: str
    token_ids: Sequence[int]
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_tokens: int


class EngineModel:
    """The engine behind this endpoint. Every method may be called from any thread, and many at once.

    A prompt is a text, token ids, or chat messages; `fields` are those of `/v1/completions` (`/v1/chat/completions` for
    messages): `max_tokens`, `temperature`, `stop` ... An answer that is no longer wanted frees its slot: close the
    iterator, or let it go. One that comes too late for its request is ended (DeadlineExceeded).

    :raises ClientError: from every method, a prompt or a field that cannot be used.
    :raises ServerError: the engine failed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def names(self) -> tuple[str, ...]:
        return self._engine.served_names

    @property
    def max_model_len(self) -> int:
        """The context, in tokens."""
        return self._engine.limits.max_model_len

    def generate(self, prompt: Prompt, **fields: Any) -> Completion:
        """The whole answer. Waits for it."""
        generation = self._generation(prompt, fields, stream=False)
        text, token_ids, finish_reason, stop_reason = next(self._steps(generation))
        return Completion(text, token_ids, finish_reason, stop_reason, len(generation.prompt))

    def chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Completion:
        """`generate`, for messages."""
        return self.generate(messages, **fields)

    def stream(self, prompt: Prompt, **fields: Any) -> Iterator[str]:
        """The answer's text, a piece at a time."""
        for text, *_ in self._steps(self._generation(prompt, fields, stream=True)):
            if text:
                yield text

    async def agenerate(self, prompt: Prompt, **fields: Any) -> Completion:
        """`generate`, for async hooks."""
        generation = self._generation(prompt, fields, stream=False)
        async for text, token_ids, finish_reason, stop_reason in self._asteps(generation):
            return Completion(text, token_ids, finish_reason, stop_reason, len(generation.prompt))
        raise AssertionError("an answer ends with output or with an error")

    async def astream(self, prompt: Prompt, **fields: Any) -> AsyncIterator[str]:
        """`stream`, for async hooks."""
        async for text, *_ in self._asteps(self._generation(prompt, fields, stream=True)):
            if text:
                yield text

    def respond(self, document: Mapping[str, Any]) -> Any:
        """What /invocations answers to such a body, as an object: chat, completion, TGI or LMI. Never streamed."""
        call: AnyCall = dispatch.parse({**document, "stream": False}, self._engine)
        if call.stream:
            raise InvalidField("parameters.output_formatter", "respond() streams nothing: use stream()")
        answer = _Answer()
        self._engine.loop.call(call.request(self._engine, answer).begin, *timing(stream=False))
        return msgspec.json.decode(call.reply.whole(*answer.wait()))

    def _generation(self, prompt: Prompt, fields: Mapping[str, Any], *, stream: bool) -> Generation:
        is_chat = not isinstance(prompt, str) and all(isinstance(item, Mapping) for item in prompt)
        given = prompt if isinstance(prompt, str) else list(prompt)
        body = {**fields, "messages" if is_chat else "prompt": given, "stream": stream}
        call: Call = (chat if is_chat else completion).parse(body, self._engine)
        return call.generation

    def _steps(self, generation: Generation) -> Iterator[CompletionStep]:
        queue: SimpleQueue[CompletionStep | EndpointError] = SimpleQueue()
        request = self._begin(generation, queue.put)
        try:
            while True:
                step = _checked(queue.get())
                yield step
                if step[2] is not None:
                    return
        finally:
            self._engine.loop.call(request.cancel)

    async def _asteps(self, generation: Generation) -> AsyncIterator[CompletionStep]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[CompletionStep | EndpointError] = asyncio.Queue()
        request = self._begin(generation, lambda item: loop.call_soon_threadsafe(queue.put_nowait, item))
        try:
            while True:
                step = _checked(await queue.get())
                yield step
                if step[2] is not None:
                    return
        finally:
            self._engine.loop.call(request.cancel)

    def _begin(self, generation: Generation, put: Callable[[CompletionStep | EndpointError], object]) -> EngineRequest:
        request = self._engine.request(generation, _Channel(put))
        self._engine.loop.call(request.begin, *timing(stream=generation.stream))
        return request


def _checked(item: CompletionStep | EndpointError) -> CompletionStep:
    if isinstance(item, EndpointError):
        raise item
    return item


class _Channel:
    """A sink that hands on every step and the error."""

    __slots__ = ("_put",)

    def __init__(self, put: Callable[[CompletionStep | EndpointError], object]) -> None:
        self._put = put

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self._put((text, token_ids, finish_reason, stop_reason))

    def fail(self, error: EndpointError) -> None:
        self._put(error)


class _Answer:
    """A sink that waits for the only step."""

    __slots__ = ("_done", "_item")

    def __init__(self) -> None:
        self._done = threading.Event()
        self._item: CompletionStep | EndpointError = ("", (), None, None)

    def push(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> None:
        self._item = (text, token_ids, finish_reason, stop_reason)
        self._done.set()

    def fail(self, error: EndpointError) -> None:
        self._item = error
        self._done.set()

    def wait(self) -> CompletionStep:
        self._done.wait()
        return _checked(self._item)
