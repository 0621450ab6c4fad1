"""Builds large whole replies in threads, and encodes them in pieces. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

vLLM's serving classes make one object for each log probability, in 10 us, on the event loop. A reply with 400,000 would
hold all other requests up for 4 s. pydantic encodes a reply in one call, which holds the interpreter.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from pydantic import BaseModel

from handler.engine.fast_import import without_collection

# Tokens and log probabilities of a reply that is built on the loop.
SMALL: Final = 1000
# Items of a list that are encoded in one call.
AT_ONCE: Final = 64


@dataclass(slots=True)
class UnbuiltReply:
    """A whole reply that is to be built in a thread. It holds the engine's outputs until then."""

    build: Callable[[], Any] | None


def build_apart(state: SimpleNamespace) -> None:
    """Has vLLM's serving objects return an `UnbuiltReply` for each large whole reply."""
    for name, method, wrap in (
        ("openai_serving_chat", "chat_completion_full_generator", _drained),
        ("openai_serving_completion", "request_output_to_completion_response", _collected),
        ("openai_serving_responses", "responses_full_generator", _drained),
    ):
        serving = getattr(state, name, None)
        if serving is not None:
            setattr(serving, method, wrap(getattr(serving, method)))


def _drained(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that reads the engine's outputs itself, and then builds the reply. Its outputs are an argument."""

    async def drained(*arguments: Any, **named: Any) -> Any:
        values = [*arguments, *named.values()]
        source = next(value for value in values if isinstance(value, AsyncIterator))
        last: list[Any] = []
        async for output in source:
            last = [output]
        arguments = tuple(_replay(last) if value is source else value for value in arguments)
        named = {name: _replay(last) if value is source else value for name, value in named.items()}
        if _size(last) <= SMALL:
            return await method(*arguments, **named)
        return UnbuiltReply(lambda: asyncio.run(method(*arguments, **named)))

    return drained


async def _replay(outputs: Iterable[Any]) -> AsyncIterator[Any]:
    for output in outputs:
        yield output


def _collected(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gets the last output of each prompt, and the request. 0.16.0 streams beams as one whole reply."""

    def collected(outputs: list[Any], request: Any, *arguments: Any, **named: Any) -> Any:
        if request.stream or _size(outputs) <= SMALL:
            return method(outputs, request, *arguments, **named)
        return UnbuiltReply(lambda: method(outputs, request, *arguments, **named))

    return collected


def _size(outputs: Iterable[Any]) -> int:
    """The tokens of outputs, and their log probabilities."""
    size = 0
    for output in outputs:
        output = getattr(output, "final_output", output)  # of /v1/responses
        for completion in getattr(output, "outputs", ()):
            scores = completion.logprobs
            size += len(completion.token_ids) * (1 + (len(scores[0]) if scores else 0))
        prompt = getattr(output, "prompt_logprobs", None)
        if prompt:
            size += SMALL + 1
    return size


def build(reply: UnbuiltReply) -> tuple[Any, str]:
    """Builds a reply, and encodes it. Call in a thread.

    :returns: the document, without its long lists, and its JSON.
    """
    make, reply.build = reply.build, None
    assert make is not None, "it is built once"
    # A collection would walk all new objects, while every thread waits. At the end of this most are gone.
    with without_collection():
        document = make()
        del make
        if not isinstance(document, BaseModel):
            return document, ""
        encoded = "".join(json_pieces(document))
        _drop_lists(document)
        return document, encoded


def json_pieces(document: BaseModel) -> Iterator[str]:
    """The JSON of a document in pieces, together as `model_dump_json` writes it. Takes its long lists out."""
    lists: list[list[BaseModel]] = []
    _take_lists(document, lists)
    rest = document.model_dump_json(warnings=False)
    for place, items in enumerate(lists):
        before, _, rest = rest.partition(json.dumps([_mark(place)]))
        yield before + "["
        for number, item in enumerate(items):
            yield ("," if number else "") + item.model_dump_json()
        yield "]"
    yield rest


def _take_lists(model: BaseModel, lists: list[list[BaseModel]]) -> None:
    """Replaces each long list of models by a mark that JSON text cannot contain: its quotes would be escaped."""
    for name, value in vars(model).items():
        if isinstance(value, BaseModel):
            _take_lists(value, lists)
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            if len(value) > AT_ONCE:
                vars(model)[name] = [_mark(len(lists))]
                lists.append(value)
            else:
                for item in value:
                    _take_lists(item, lists)


def _drop_lists(model: BaseModel) -> None:
    """Empties all long lists of a document that has been encoded."""
    for name, value in vars(model).items():
        if isinstance(value, BaseModel):
            _drop_lists(value)
        elif isinstance(value, list):
            if len(value) > AT_ONCE:
                vars(model)[name] = []
            for item in vars(model)[name]:
                if isinstance(item, BaseModel):
                    _drop_lists(item)


def _mark(place: int) -> str:
    return f"@{place}"
