"""One request of the fast path, from its bytes to its reply. All of it runs on the engine's loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from flask import Request, Response

from container.connection.half_close import HalfClose
from container.connection.socket_writer import CLIENT_CLOSED, SocketWriter
from container.fast_path.deferred_observer import DeferredObserver
from container.fast_path.reply_head import Header, ReplyHeads
from container.fast_path.request_head import NotEligible, RequestHead
from container.pipeline.request_pipeline import body_parser, parse_call, requested_model, route_parser, with_model
from container.requests import custom_attributes
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import TIMEOUT_HEADER, Deadline, max_body
from container.requests.request_record import KEY, RequestRecord
from container.service import Service
from container.streaming.call_lifecycle import begin_call, record_outcome
from container.streaming.sinks import BufferedSink, StreamingSink
from container.streaming.token_response import STREAM_HEADERS
from handler.engine.engine import Engine
from handler.errors import EndpointError
from handler.schemas.dispatch import fast_path_eligible
from handler.schemas.framing import unframed
from handler.schemas.json_body import decode
from handler.schemas.reply import AnyCall, Call, RunningCall


@dataclass(frozen=True, slots=True)
class FastPathContext:
    """What all request handlers of a process share."""

    service: Service
    loop: asyncio.AbstractEventLoop
    heads: ReplyHeads
    deferred_observer: DeferredObserver


@dataclass(slots=True, eq=False, repr=False)
class RequestHandler:
    """Answers one request that has been read completely.

    :ivar handed_over: the next serving process has the connection, so this one closes it without a shutdown.
    :param _ended: called once, at the end: the reply was sent, or the client has left. True: the connection stays open.
    """

    _context: FastPathContext
    _socket: socket.socket
    _head: RequestHead
    _ended: Callable[[RequestHandler, bool], None]
    _writer: SocketWriter | None = None
    _half_close: HalfClose | None = None
    _call: AnyCall = field(init=False)
    _sink: BufferedSink | StreamingSink = field(init=False)
    _returned: tuple[Header, ...] = field(init=False)
    _deadline: Deadline = field(init=False)
    record: RequestRecord = field(init=False)
    handed_over: bool = False

    def __post_init__(self) -> None:
        self.record = RequestRecord(self._head.environ)
        returned = custom_attributes.returned(self._head.environ.get(custom_attributes.ENVIRON))
        self._returned = () if returned is None else ((custom_attributes.HEADER, returned),)

    def begin(self, body: bytes) -> None:
        """Begins the call to the engine.

        :raises NotEligible: a thread answers the request. There are no side effects.
        :raises EndpointError: the request is not valid. There are no side effects.
        """
        began = time.monotonic()
        service = self._context.service
        engine = service.ready_engine()
        if len(body) > max_body(service.config):
            raise NotEligible
        document = decode(body)
        if self.record.attributes.keys() & {"route", "schema"} or not fast_path_eligible(
            self._head.route, document, engine.traits
        ):
            raise NotEligible
        service.observer.began(self.record, self._head.environ)
        self._head.environ[KEY] = self.record
        self.record.route = self._head.path
        request = Request(self._head.environ)
        route = self._head.route
        parse = body_parser(service, request) if route is None else route_parser(route, request)
        parse = with_model(parse, requested_model(service, request))
        timeout = request.headers.get(TIMEOUT_HEADER)
        service.recovery.keep(self.record, body)
        if service.recovery.suspected(self.record):
            raise NotEligible
        self.record.may_rerun = True
        call, self._deadline = parse_call(service, engine, parse, document, self.record, began, timeout=timeout)
        if not isinstance(unframed(call), Call):
            raise NotEligible
        self._call = call
        self._returned += self.record.ignored_header
        running = self._with_sink(engine, call)
        service.admission.enter()
        # From here on this handler sends the reply, also if it is an error.
        service.observer.fast_path.inc()
        begin_call(running, self._deadline, partial(self._context.deferred_observer.started, self.record, body))

    def _with_sink(self, engine: Engine, call: AnyCall) -> RunningCall:
        if call.stream:
            stream = self._sink = StreamingSink(call.reply)
            running = stream.running = call.request(engine, stream)
            headers = (("Content-Type", call.reply.stream_content_type), *STREAM_HEADERS, *self._returned)
            head = self._context.heads.head(200, headers, keep_alive=self._head.keep_alive, chunked=True)
            self._writer = stream.writer = SocketWriter(
                self._socket, self._context.loop, head, True, stream.client_left, self._stream_ended
            )
            return running
        buffered = self._sink = BufferedSink(call.reply)
        buffered.release = self._reply_complete
        running = buffered.running = call.request(engine, buffered)
        return running

    def half_close(self) -> None:
        """Call when the client's bytes have ended. If it has left, the request ends."""
        if self._writer is not None:
            self._writer.half_close()
        else:
            self._half_close = HalfClose(self._socket, self._context.loop, lambda: True, self._left)

    def _left(self) -> None:
        self._sink.client_left(CLIENT_CLOSED)
        self._reply_complete()

    def _stream_ended(self) -> None:
        stream = self._sink
        assert isinstance(stream, StreamingSink)
        self._context.service.admission.leave()
        self.record.status = 200
        record_outcome(self.record, self._call, stream)
        if self._rerun(stream.error, None if stream.writer.started else self._socket):
            self._end(False)
        elif stream.error is not None and not stream.writer.started:
            self._send_error(stream.error)
        else:
            self._end(stream.whole)

    def _reply_complete(self) -> None:
        buffered = self._sink
        assert isinstance(buffered, BufferedSink)
        if self._half_close is not None:
            self._half_close.stop()
        self._context.service.admission.leave()  # a slow reader of a whole reply holds no admission
        self.record.status = 200
        record_outcome(self.record, self._call, buffered)
        if buffered.left_reason is not None or self._rerun(buffered.error, self._socket):
            self._end(False)
        elif buffered.error is not None:
            self._send_error(buffered.error)
        else:
            try:
                body = buffered.body()
            except Exception as error:
                self._send_error(unexpected(error))
                return
            self._send(200, (("Content-Type", self._call.reply.content_type),), body)

    def _rerun(self, error: EndpointError | None, connection: socket.socket | None) -> bool:
        """Whether the next serving process answers the request, because the engine has died."""
        failed = self._context.service.recovery.failed
        self.handed_over = failed(error, self.record, self._head.environ, connection, self._deadline)
        if self.handed_over:
            self.record.status = 503
        return self.handed_over

    def _send_error(self, error: EndpointError) -> None:
        response: Response = error_response(error)
        self.record.failed(error)
        headers = [(name, value) for name, value in response.headers.items() if name != "Content-Length"]
        self._send(response.status_code, headers, response.get_data())

    def _send(self, status: int, headers: tuple[Header, ...] | list[Header], body: bytes) -> None:
        self.record.status = status
        all_headers = (*headers, ("Content-Length", str(len(body))), *self._returned)
        head = self._context.heads.head(status, all_headers, keep_alive=self._head.keep_alive, chunked=False)
        writer = self._writer = SocketWriter(
            self._socket, self._context.loop, head, False, self._client_left, lambda: self._end(writer.open)
        )
        writer.finish(body)

    def _client_left(self, reason: str) -> None:
        self.record.left = reason

    def _end(self, whole: bool) -> None:
        self._ended(self, whole and self._head.keep_alive)
