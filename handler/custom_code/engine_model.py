"""The engine as custom code sees it. The default `model_fn` returns it. Context variables hold facts of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import msgspec

from handler.custom_code.code_contract import CodeReply
from handler.engine.engine import Engine
from handler.engine.generation.generation import StopReason
from handler.errors import EndpointError, InvalidField, UnsupportedField
from handler.schemas import dispatch, request_fields
from handler.schemas.openai import chat, completion
from handler.schemas.openai.model_names import without_unknown_model
from handler.schemas.reply import AnyCall, Call, Reply, RunningCall
from handler.schemas.request_fields import Body
from handler.schemas.tgi_lmi.request_options import RequestOptions

# Takes whether the answer is streamed. Returns the seconds left, and the error for an answer that is too late.
RequestDeadline = Callable[[bool], tuple[float, EndpointError]]
# Set in the thread of a sync hook, and in the task of an async hook.
REQUEST_DEADLINE: ContextVar[RequestDeadline | None] = ContextVar("until", default=None)
# Collects what the engine raised in a request, whatever the code makes of it.
ENGINE_ERRORS: ContextVar[list[EndpointError] | None] = ContextVar("engine_errors", default=None)


def deadline_arguments(*, stream: bool) -> tuple[float, EndpointError] | tuple[()]:
    """The arguments for `EngineRequest.begin`. None outside of a request."""
    deadline = REQUEST_DEADLINE.get()
    return () if deadline is None else deadline(stream)


Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
CompletionStep = tuple[str, Sequence[int], str | None, StopReason]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.

    :ivar finish_reason: `stop` or `length`.
    :ivar stop_reason: the stop string or the token id that ended it.
    """

    text: str
    token_ids: Sequence[int]
    finish_reason: str | None
    stop_reason: int | str | None
    prompt_tokens: int


class EngineModel:
    """The engine of this endpoint. Every method may be called from any thread, and by many threads at the same time.

    A prompt is a text, token ids, or chat messages. `fields` are those of `/v1/completions`, or of
    `/v1/chat/completions` for messages: `max_tokens`, `temperature`, `stop` ... To stop an answer and free its slot,
    close the iterator or drop it. An answer that exceeds the deadline of its request ends with DeadlineExceeded.

    :raises ClientError: from every method: a prompt or a field cannot be used.
    :raises ServerError: from every method: the engine failed.
    """

    def __init__(self, engine: Engine, options: RequestOptions | None = None) -> None:
        self._engine = engine
        self._options = options or RequestOptions()

    @property
    def names(self) -> tuple[str, ...]:
        return self._engine.served_names

    @property
    def max_model_len(self) -> int:
        """The context, in tokens."""
        return self._engine.limits.max_model_len

    def generate(self, prompt: Prompt, **fields: Any) -> Completion:
        """The whole answer. Blocks until it is complete."""
        call = self._call(prompt, fields, stream=False)
        return Completion(*next(self._steps(call)), len(call.generation.prompt))

    def chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Completion:
        """`generate`, for messages."""
        return self.generate(messages, **fields)

    def stream(self, prompt: Prompt, **fields: Any) -> Iterator[str]:
        """The text of the answer, piece by piece."""
        for text, *_ in self._steps(self._call(prompt, fields, stream=True)):
            if text:
                yield text

    async def agenerate(self, prompt: Prompt, **fields: Any) -> Completion:
        """`generate`, for async hooks."""
        call = self._call(prompt, fields, stream=False)
        return Completion(*await anext(self._asteps(call)), len(call.generation.prompt))

    async def astream(self, prompt: Prompt, **fields: Any) -> AsyncIterator[str]:
        """`stream`, for async hooks."""
        async for text, *_ in self._asteps(self._call(prompt, fields, stream=True)):
            if text:
                yield text

    def respond(self, document: Mapping[str, Any], adapter: str | None = None) -> Any:
        """As `answer`, as an object: chat, completion, TGI or LMI. It is never streamed."""
        whole = EngineModel(self._engine, replace(self._options, output_formatter=None))
        body = whole.answer({**document, "stream": False}, adapter).body
        if not isinstance(body, bytes):
            raise InvalidField("parameters.output_formatter", "respond() cannot stream: use stream()")
        return msgspec.json.decode(body)

    def answer(self, document: Mapping[str, Any], adapter: str | None = None) -> CodeReply:
        """The reply of /invocations to a body, as bytes. An iterator of events if the body asks for a stream.

        :param adapter: the adapter that the request's header names.
        """
        engine = self._engine
        _check_texts(document)
        document = {**document, "model": adapter} if adapter else without_unknown_model(document, engine)
        call: AnyCall = dispatch.parse(document, engine, self._options)
        steps = self._steps(call)
        first = next(steps)
        if not call.stream:
            return CodeReply(call.reply.whole(*first), call.reply.content_type)
        return CodeReply(_events(call.reply, first, steps), call.reply.stream_content_type)

    def _call(self, prompt: Prompt, fields: Mapping[str, Any], *, stream: bool) -> Call:
        is_chat = not isinstance(prompt, str) and all(isinstance(item, Mapping) for item in prompt)
        value = prompt if isinstance(prompt, str) else list(prompt)
        body = {**fields, "messages" if is_chat else "prompt": value, "stream": stream}
        kind = Body.CHAT if is_chat else Body.COMPLETION
        _check_texts(body)
        fields, _ = request_fields.resolve(kind, body)
        for name, meaning in request_fields.meanings(kind).items():
            if not meaning.plain and meaning.fix and meaning.has_effect(fields.get(name)):
                raise UnsupportedField(name, "this method returns plain text only: send it to respond()")
        parse = chat.parse if is_chat else completion.parse
        return parse(fields, self._engine)

    def _steps(self, call: AnyCall) -> Generator[CompletionStep]:
        queue: SimpleQueue[CompletionStep | EndpointError] = SimpleQueue()
        request = self._begin(call, queue.put)
        try:
            while True:
                step = _checked(queue.get())
                yield step
                if step[2] is not None:
                    return
        finally:
            self._engine.loop.call(request.cancel)

    async def _asteps(self, call: AnyCall) -> AsyncIterator[CompletionStep]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[CompletionStep | EndpointError] = asyncio.Queue()
        request = self._begin(call, lambda item: loop.call_soon_threadsafe(queue.put_nowait, item))
        try:
            while True:
                step = _checked(await queue.get())
                yield step
                if step[2] is not None:
                    return
        finally:
            self._engine.loop.call(request.cancel)

    def _begin(self, call: AnyCall, put: Callable[[CompletionStep | EndpointError], object]) -> RunningCall:
        request = call.request(self._engine, _ForwardingSink(put))
        self._engine.loop.call(request.begin, *deadline_arguments(stream=call.stream))
        return request


def _check_texts(fields: Mapping[str, Any]) -> None:
    """Python's own decoder of JSON makes such texts, of which the engine's decoder makes an error.

    :raises InvalidField: a text has half of a surrogate pair, which is no character.
    """
    for name, value in fields.items():
        try:
            msgspec.json.encode(value, enc_hook=str)
        except UnicodeEncodeError:
            raise InvalidField(name, "a text in it has half of a surrogate pair, which is no character") from None
        except (TypeError, ValueError, OverflowError, RecursionError):  # no value of JSON: its field has its own error
            continue


def _events(reply: Reply, first: CompletionStep, steps: Generator[CompletionStep]) -> Iterator[bytes]:
    """The bytes of a stream. Closing the iterator ends the request."""
    try:
        yield reply.opening() + reply.event(*first)
        for step in steps:
            if event := reply.event(*step):
                yield event
        yield reply.closing()
    except EndpointError as error:
        yield reply.broken(error)
        raise
    finally:
        steps.close()


def _checked(item: CompletionStep | EndpointError) -> CompletionStep:
    if isinstance(item, EndpointError):
        if (errors := ENGINE_ERRORS.get()) is not None:
            errors.append(item)
        raise item
    return item


@dataclass(frozen=True, slots=True)
class _ForwardingSink:
    """A sink that forwards every step, and the error."""

    put: Callable[[CompletionStep | EndpointError], object]

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        self.put((text, token_ids, finish_reason, stop_reason))

    def fail(self, error: EndpointError) -> None:
        self.put(error)
