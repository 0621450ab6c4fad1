"""Calls an ASGI application with one request, without an HTTP server. httpx's ASGITransport cannot stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, MutableMapping
from typing import Any

from handler.custom_code.code_contract import CodeReply, CodeRequest
from handler.custom_code.hook_caller import HookCaller, contained

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
logger = logging.getLogger(__name__)
# Applications that go on after their whole reply: background tasks, middleware. The event loop keeps no reference.
_after_reply: set[asyncio.Task[None]] = set()
# Headers that a reply has once. The last one counts.
SINGLE = ("content-type", "content-length", "location", "x-amzn-sagemaker-custom-attributes")
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def call_application(app: Application, caller: HookCaller, request: CodeRequest) -> CodeReply:
    """The application's reply. A body without a length is an iterator over its pieces.

    :raises EndpointError: the application raised an exception and sent no reply.
    """
    messages = caller.pieces(f"{request.method} {request.path}", _messages(app, request))
    start, first = next(messages), next(messages)
    headers, repeated = dict[str, str](), list[tuple[str, str]]()
    for header in start.get("headers", ()):
        name, value = (part.decode("latin-1") for part in header)
        if name in headers and name not in SINGLE:
            repeated.append((name, value))
        else:
            headers[name] = value
    content_type = headers.pop("content-type", "application/octet-stream")
    whole = headers.pop("content-length", None) is not None or not first.get("more_body")
    body = _body(first, messages)
    return CodeReply(b"".join(body) if whole else body, content_type, start["status"], headers, tuple(repeated))


def _body(message: Message, messages: Generator[Message]) -> Iterator[bytes]:
    try:
        while True:
            if piece := message.get("body", b""):
                yield piece
            if not message.get("more_body"):
                return
            message = next(messages)
    finally:
        messages.close()


async def _messages(app: Application, request: CodeRequest) -> AsyncIterator[Message]:
    """What the application sends for one request.

    Closing the iterator cancels the application, unless its reply is whole: it may go on after that, as on a server.
    """
    sent: asyncio.Queue[Message] = asyncio.Queue(1)
    whole = asyncio.Event()
    arrived = False

    async def receive() -> Message:
        nonlocal arrived
        if arrived:
            await whole.wait()  # a client that leaves cancels the task
            return {"type": "http.disconnect"}
        arrived = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Message) -> None:
        if whole.is_set():
            raise RuntimeError("it sent a message after its whole reply")
        await sent.put(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            whole.set()

    def ended(task: asyncio.Task[None]) -> None:
        _after_reply.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s %s raised an exception after its reply", request.method, request.path, exc_info=error)

    task = asyncio.ensure_future(contained(app(_scope(request), receive, send)))
    try:
        while True:
            message = asyncio.ensure_future(sent.get())
            await asyncio.wait({message, task}, return_when=asyncio.FIRST_COMPLETED)
            if not message.done():
                message.cancel()
                task.result()  # raises what the application raised
                raise RuntimeError("it ended without a whole reply")
            yield message.result()
    finally:
        if whole.is_set():
            _after_reply.add(task)
            task.add_done_callback(ended)
        else:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # raised already, or while it was cancelled


def _scope(request: CodeRequest) -> dict[str, Any]:
    """The connection scope of a request (ASGI specification, HTTP connection scope)."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()
        ],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 8080),
    }
