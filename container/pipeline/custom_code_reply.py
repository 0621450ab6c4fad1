"""The seam between the routes, the start and the owner's own code (`handler.custom_code`)."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from io import BytesIO

from flask import Request, Response

from container.requests.http_limits import TIMEOUT_HEADER, deadline, max_body, whole_only
from container.requests.request_body import read_body
from container.requests.request_record import record_of
from container.service import Service
from handler.custom_code.code_contract import CodeReply, CodeRequest, CustomCode
from handler.custom_code.request_deadline import UNTIL

logger = logging.getLogger(__name__)


def custom_response(service: Service, code: CustomCode, request: Request) -> Response | None:
    """The code's reply; None: it leaves the request to the endpoint, whose body can be read again.

    The place is held until the reply's last byte.

    :raises EndpointError: as the code says.
    """
    began, config = time.monotonic(), service.config
    service.lifecycle.require_ready()
    service.admission.enter()
    response: Response | None = None
    try:
        body = read_body(request, max_body(config), service.deadlines)
        late = partial(deadline, config, request.headers.get(TIMEOUT_HEADER), began)
        service.observer.started(record_of(request.environ), body)
        late(stream=False)  # a header that asks for a time that is none is refused before the code runs
        context = copy_context()  # a thread serves many requests, and a deadline is one request's
        context.run(UNTIL.set, lambda stream: ((until := late(stream=stream)).left(), until.error()))
        accept = request.headers.get("Accept", "")
        asked = CodeRequest(body, dict(request.headers), request.mimetype, accept, uuid.uuid4().hex)
        outcome = context.run(code.invoke, asked)
        if outcome is None:
            request.environ["wsgi.input"] = BytesIO(body)
            return None
        if whole_only(config) and not isinstance(outcome.body, bytes):
            outcome = replace(outcome, body=context.run(b"".join, outcome.body))
        response = reply_of(outcome, context)
        response.call_on_close(service.admission.leave)
        return response
    finally:
        if response is None:
            service.admission.leave()


def reply_of(outcome: CodeReply, context: Context) -> Response:
    """A stream's first piece is waited for: what fails before it has a status of its own.

    :param context: the request's, in which the code makes every piece.
    """
    if isinstance(outcome.body, bytes):
        response = Response(outcome.body, outcome.status, content_type=outcome.content_type)
    else:
        pieces = Pieces(outcome.body, context)
        response = Response(pieces, outcome.status, content_type=outcome.content_type)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Accel-Buffering"] = "no"
    for name, value in outcome.headers.items():
        response.headers[name] = " ".join(value.split())
    return response


class Pieces:
    """A WSGI body whose first piece is here already. Closing it ends the code behind it."""

    def __init__(self, pieces: Iterator[bytes], context: Context) -> None:
        self._source = pieces
        self._context = context
        self._first = context.run(next, pieces, None)

    def __iter__(self) -> Iterator[bytes]:
        piece, self._first = self._first, None
        while piece is not None:
            yield piece
            piece = self._context.run(next, self._source, None)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            self._context.run(close)
