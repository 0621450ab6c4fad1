"""Answers requests with the model's custom code (`handler.custom_code`), which runs in threads."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from werkzeug.datastructures import Headers
from werkzeug.http import is_hop_by_hop_header
from werkzeug.wrappers import Request

from container.http.exchange import BODILESS, Exchange, send_pieces
from container.inference.session_requests import close_unseen, manage_session_of_code, session_headers
from container.inference.trial import code_ended
from container.requests import custom_attributes
from container.requests.deadline import TIMEOUT_HEADER, deadline, requires_content_length
from container.service import Service
from handler.custom_code.code_contract import PING, CodeReply, CodeRequest, CustomCode
from handler.custom_code.code_errors import InvalidReply, PingUnanswered, ReplyHeadersTooLong
from handler.custom_code.engine_model import ENGINE_ERRORS, REQUEST_DEADLINE
from handler.custom_code.hook_caller import as_endpoint_error
from handler.engine.core_queue import GROUP, RequestGroup
from handler.errors import EndpointError
from handler.sessions.session_store import HEADER as SESSION_HEADER

# Bytes of a reply's headers on an asynchronous endpoint (aws/deep-learning-containers, issue 4668), less the server's.
MOST_REPLY_HEADERS = 4096 - 256
# SageMaker waits 2 s.
PING_SECONDS = 30.0
# A header's name (RFC 9110, 5.6.2).
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
Result = TypeVar("Result")


def code_for(service: Service, method: str, path: str) -> CustomCode | None:
    """The code that answers requests of this method and path."""
    code = service.custom_code
    return code if code is not None and code.answers(method, path.rstrip("/")) else None


class CodePing:
    """Asks the code's own handler of /ping, one request at a time: whoever asks meanwhile gets the same answer.

    So one that hangs holds one thread, and none of those of the other requests.
    """

    def __init__(self) -> None:
        self._running: asyncio.Future[CodeReply] | None = None

    async def reply(self, code: CustomCode, request: CodeRequest, threads: Executor) -> CodeReply:
        """:raises EndpointError: raised by the code, or it has not answered in time."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(threads, _run, _whole, code, request)
        try:
            return await asyncio.wait_for(asyncio.shield(self._running), PING_SECONDS)
        except TimeoutError as error:
            raise PingUnanswered(PING_SECONDS) from error


async def answer_with_code(
    service: Service, code: CustomCode, exchange: Exchange, threads: Executor, pings: CodePing
) -> bool:
    """Has the code answer a request. Returns whether it has: it may leave the request to the endpoint.

    The admission is held until the reply's last byte. A request that is left to the endpoint keeps it.

    :raises EndpointError: raised by the code, or the request is not valid.
    """
    loop = asyncio.get_running_loop()
    if (exchange.method, exchange.path.rstrip("/")) == PING:
        exchange.record.route = PING[1]
        reply = await pings.reply(code, _code_request(exchange, b""), threads)
        await _send(exchange, reply, copy_context(), threads, service)
        return True
    service.lifecycle.require_ready()
    session = None if code.manages_sessions else exchange.request.headers.get(SESSION_HEADER)
    service.admission.enter()
    try:
        if not code.manages_sessions and manage_session_of_code(service, exchange, session):
            return True
        deadline_of = partial(
            deadline, service.config, exchange.request.headers.get(TIMEOUT_HEADER), exchange.record.began
        )
        if code.may_decline:  # whoever answers reports it
            exchange.record.assign_id()
        else:
            service.observer.started(exchange.record, exchange.body)
        deadline_of(stream=False)  # an invalid header is rejected before the code runs
        service.recovery.keep(exchange.record, exchange.body)
        exchange.headers.extend(session_headers(service, session).items())
        context = copy_context()
        context.run(
            REQUEST_DEADLINE.set, lambda stream: ((limit := deadline_of(stream=stream)).remaining(), limit.error())
        )
        errors: list[EndpointError] = []
        context.run(ENGINE_ERRORS.set, errors)
        if service.recovery.suspected(exchange.record):
            context.run(GROUP.set, RequestGroup(alone=True))
        request = _code_request(exchange, exchange.body)
        try:
            outcome = await loop.run_in_executor(threads, _run, context.run, code.invoke, request)
            if outcome is None:
                close_unseen(service, exchange)
                exchange.admitted = True
                return False
            if code.may_decline:
                service.observer.started(exchange.record, exchange.body)
            await _send(exchange, outcome, context, threads, service)
        except EndpointError:
            code_ended(service, exchange, errors)
            raise
        code_ended(service, exchange, errors)
        return True
    finally:
        if not exchange.admitted:
            service.admission.leave()


async def _send(exchange: Exchange, outcome: CodeReply, context: Context, threads: Executor, service: Service) -> None:
    """Sends the code's reply. Waits for the first piece of a stream: an error before it has its own status.

    :param context: the request's context, in which the code makes every piece.
    """
    loop = asyncio.get_running_loop()
    try:
        headers = _headers(outcome)
        if outcome.status >= 400:
            close_unseen(service, exchange)
        if service.config.asynchronous:
            _check_headers(headers, exchange.request)
        exchange.headers = [header for header in exchange.headers if header[0] not in headers]  # the code's own count
        status = int(outcome.status)
        if isinstance(outcome.body, bytes):
            exchange.send(status, headers, outcome.body)
            return
        # Until there are no more.
        pieces: Iterator[bytes] = iter(partial(_run, context.run, next, outcome.body, None), None)
        if requires_content_length(service.config) or status in BODILESS:
            exchange.send(status, headers, await loop.run_in_executor(threads, b"".join, pieces))
            return
        first = await loop.run_in_executor(threads, lambda: list(islice(pieces, 1)))
        headers["Cache-Control"], headers["X-Accel-Buffering"] = "no-cache", "no"
        exchange.begin(status, headers)
        await send_pieces(exchange, chain(first, pieces), threads)
    finally:
        close = getattr(outcome.body, "close", None)
        if close is not None:
            await loop.run_in_executor(threads, _run, context.run, close)


def _whole(code: CustomCode, request: CodeRequest) -> CodeReply:
    """The code's reply, without a stream."""
    reply = code.invoke(request)
    assert reply is not None, "code answers the routes that it has"
    return reply if isinstance(reply.body, bytes) else replace(reply, body=b"".join(reply.body))


def _run(function: Callable[..., Result], *arguments: object) -> Result:
    """Calls own code in its thread.

    :raises EndpointError: whatever the code raised: what ends an interpreter would end the loop.
    """
    try:
        return function(*arguments)
    except BaseException as error:
        raise as_endpoint_error("the model's code", error) from error


def _headers(outcome: CodeReply) -> Headers:
    """:raises InvalidReply: the status is none of a final reply, or a header has characters that HTTP does not have."""
    # HTTPStatus is a whole number, too.
    if not isinstance(outcome.status, int) or isinstance(outcome.status, bool) or not 200 <= outcome.status <= 599:
        raise InvalidReply(f"the status {str(outcome.status)[:20]}", "give a whole number from 200 to 599")
    headers = Headers()
    first = {"Content-Type": outcome.content_type, **outcome.headers}
    for put, pairs in ((headers.set, first.items()), (headers.add, outcome.repeated)):
        for name, value in pairs:
            if not TOKEN.fullmatch(name) or not _in_latin1(text := " ".join(str(value).split())):
                raise InvalidReply(f"the header {name[:80]!r}, of characters that HTTP does not have", "encode them")
            if not is_hop_by_hop_header(name) and name.lower() != "content-length":
                put(name, text)
    return headers


def _in_latin1(text: str) -> bool:
    return all(character <= "\xff" for character in text)


def _check_headers(reply: Headers, request: Request) -> None:
    """Checks the size of a reply's headers on an asynchronous endpoint.

    :raises ReplyHeadersTooLong: SageMaker would fail the request.
    """
    # The reply repeats the custom attributes.
    headers = {custom_attributes.HEADER: [request.headers.get(custom_attributes.HEADER, "")]}
    headers |= {name: reply.getlist(name) for name, _ in reply}
    sizes = {name: sum(len(name) + len(value) + 4 for value in values) for name, values in headers.items()}
    if sum(sizes.values()) > MOST_REPLY_HEADERS:
        raise ReplyHeadersTooLong(sum(sizes.values()), MOST_REPLY_HEADERS, max(sizes, key=sizes.__getitem__))


def _code_request(exchange: Exchange, body: bytes) -> CodeRequest:
    request = exchange.request
    return CodeRequest(
        body,
        dict(request.headers),
        request.headers.get("Content-Type", ""),
        request.headers.get("Accept", ""),
        uuid.uuid4().hex,
        request.method,
        request.path.rstrip("/"),
        request.query_string.decode("latin-1"),
    )
