"""Answers requests with the model's custom code (`handler.custom_code`)."""

from __future__ import annotations

import time
import uuid
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import chain, islice

from flask import Request, Response
from werkzeug.wsgi import ClosingIterator

from container.requests import custom_attributes
from container.requests.http_limits import (
    MOST_REPLY_HEADERS,
    TIMEOUT_HEADER,
    deadline,
    max_body,
    requires_content_length,
)
from container.requests.request_body import read_body
from container.requests.request_record import record_of
from container.service import Service
from handler.custom_code.code_contract import PING, CodeReply, CodeRequest, CustomCode
from handler.custom_code.code_errors import ReplyHeadersTooLong
from handler.custom_code.request_deadline import REQUEST_DEADLINE


def reply_of_code(service: Service, request: Request) -> Response | None:
    """The code's reply to a request of a route that the code answers. None: the endpoint answers it."""
    code, path = service.custom_code, request.path.rstrip("/")
    if code is None or (request.method, path) == PING or not code.answers(request.method, path):
        return None
    return custom_response(service, code, request)


def custom_response(service: Service, code: CustomCode, request: Request) -> Response | None:
    """The code's reply. None: the code leaves the request to the endpoint, which can read the body again.

    The admission is held until the reply's last byte.

    :raises EndpointError: raised by the code, or the request is not valid.
    """
    began, config = time.monotonic(), service.config
    service.lifecycle.require_ready()
    service.admission.enter()
    response: Response | None = None
    try:
        body = read_body(request, max_body(config), service.read_timeouts)
        deadline_of = partial(deadline, config, request.headers.get(TIMEOUT_HEADER), began)
        service.observer.started(record_of(request.environ), body)
        deadline_of(stream=False)  # an invalid header is rejected before the code runs
        context = copy_context()  # the deadline is this request's; a thread serves many requests
        context.run(
            REQUEST_DEADLINE.set, lambda stream: ((limit := deadline_of(stream=stream)).remaining(), limit.error())
        )
        outcome = context.run(code.invoke, _code_request(request, body))
        if outcome is None:
            request.environ["wsgi.input"] = BytesIO(body)
            return None
        if requires_content_length(config) and not isinstance(outcome.body, bytes):
            outcome = replace(outcome, body=context.run(b"".join, outcome.body))
        response = _response(outcome, context)
        if config.asynchronous:
            _check_headers(response, request.headers.get(custom_attributes.HEADER, ""))
        response.call_on_close(service.admission.leave)
        return response
    finally:
        if response is None:
            service.admission.leave()


def custom_ping(code: CustomCode, request: Request) -> Response:
    """The reply of the code to a health check. It needs no admission."""
    outcome = code.invoke(_code_request(request, b""))
    assert outcome is not None, "code answers the routes that it has"
    return _response(outcome, copy_context())


def _check_headers(response: Response, attributes: str) -> None:
    """Checks the size of a reply's headers on an asynchronous endpoint.

    :param attributes: the request's custom attributes, which the reply repeats.
    :raises ReplyHeadersTooLong: SageMaker would fail the request.
    """
    headers = {custom_attributes.HEADER: attributes, **dict(response.headers.items())}
    sizes = {name: len(name) + len(value) + 4 for name, value in headers.items()}
    if sum(sizes.values()) > MOST_REPLY_HEADERS:
        raise ReplyHeadersTooLong(sum(sizes.values()), MOST_REPLY_HEADERS, max(sizes, key=sizes.__getitem__))


def _code_request(request: Request, body: bytes) -> CodeRequest:
    return CodeRequest(
        body,
        dict(request.headers),
        request.mimetype,
        request.headers.get("Accept", ""),
        uuid.uuid4().hex,
        request.method,
        request.path.rstrip("/"),
        request.query_string.decode("latin-1"),
    )


def _response(outcome: CodeReply, context: Context) -> Response:
    """The response for the code's reply. Waits for the first piece of a stream: an error before it has its own status.

    :param context: the request's context, in which the code makes every piece.
    """
    if isinstance(outcome.body, bytes):
        response = Response(outcome.body, outcome.status, content_type=outcome.content_type)
    else:
        pieces = iter(partial(context.run, next, outcome.body, None), None)  # until the code has no more pieces
        first = list(islice(pieces, 1))
        close = getattr(outcome.body, "close", None)
        body = ClosingIterator(chain(first, pieces), None if close is None else partial(context.run, close))
        response = Response(body, outcome.status, content_type=outcome.content_type)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Accel-Buffering"] = "no"
    for name, value in outcome.headers.items():
        response.headers[name] = " ".join(value.split())
    return response
