"""One request that the engine's loop answers by itself: all of it happens there, between two turns of the loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from flask import Request, Response

from container.connection.socket_writer import SocketWriter
from container.fast_path.deferred_observer import DeferredObserver
from container.fast_path.reply_head import Header, ReplyHeads
from container.fast_path.request_head import NotEligible, RequestHead
from container.pipeline.request_pipeline import by_its_body, of_route, parse_call
from container.requests import custom_attributes as attributes
from container.requests.error_responses import error_response, unexpected
from container.requests.http_limits import max_body
from container.requests.request_record import KEY, RequestRecord
from container.service import Service
from container.streaming.outcome import answered, streamed
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
    """What all exchanges of a process share."""

    service: Service
    loop: asyncio.AbstractEventLoop
    heads: ReplyHeads
    notes: DeferredObserver


class RequestHandler:
    """From a request that is all there to its reply's last byte.

    :param ended: called once, last: the reply is out, or the client is; True: the connection goes on.
    """

    __slots__ = ("_call", "_ended", "_ground", "_head", "_returned", "_sink", "_socket", "_writer", "record")

    def __init__(
        self,
        ground: FastPathContext,
        connection: socket.socket,
        head: RequestHead,
        ended: Callable[[RequestHandler, bool], None],
    ) -> None:
        self._ground = ground
        self._socket = connection
        self._head = head
        self._ended = ended
        self._writer: SocketWriter | None = None
        self._call: AnyCall
        self._sink: BufferedSink | StreamingSink
        self.record = RequestRecord(head.environ)
        given = attributes.returned(head.environ.get(attributes.ENVIRON))
        self._returned: tuple[Header, ...] = () if given is None else ((attributes.HEADER, given),)

    def begin(self, body: bytes) -> None:
        """Asks the engine.

        :raises Exception: nothing has happened; whoever answers the request instead says what is wrong with it.
        """
        began = time.monotonic()
        service = self._ground.service
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
        parse = by_its_body(service, request) if route is None else of_route(route, request)
        call, until = parse_call(service, engine, request, parse, document, began)
        if not isinstance(unframed(call), Call):
            raise NotEligible
        self._call = call
        ticket = self._ticket(engine, call)
        service.admission.enter()
        service.observer.direct.inc()
        self._ground.notes.started(self.record, body)
        try:
            ticket.begin(until.left(), until.error())
        except Exception as error:  # the place is taken, and the reply is this one's
            ticket.fail(unexpected(error))

    def _ticket(self, engine: Engine, call: AnyCall) -> RunningCall:
        if call.stream:
            stream = self._sink = StreamingSink(call.reply)
            ticket = stream.ticket = call.request(engine, stream)
            headers = (("Content-Type", call.reply.stream_content_type), *STREAM_HEADERS, *self._returned)
            head = self._ground.heads.head(200, headers, keep_alive=self._head.keep_alive, chunked=True)
            self._writer = stream.writer = SocketWriter(
                self._socket, self._ground.loop, head, True, stream.left, self._streamed
            )
            return ticket
        answer = self._sink = BufferedSink(call.reply)
        answer.release = self._answered
        answer.ticket = call.request(engine, answer)
        return answer.ticket

    def left(self, reason: str) -> None:
        """The client has closed its end."""
        if self._writer is not None:
            self._writer.left(reason)
        else:
            self._sink.left(reason)
            self._answered()

    def _streamed(self) -> None:
        stream = self._sink
        assert isinstance(stream, StreamingSink)
        self._ground.service.admission.leave()
        self.record.status = 200
        streamed(self.record, self._call, stream, stream.error, stream.gone)
        if stream.error is not None and not stream.writer.started:
            self._refuse(stream.error)
        else:
            self._over(stream.whole)

    def _answered(self) -> None:
        answer = self._sink
        assert isinstance(answer, BufferedSink)
        self._ground.service.admission.leave()  # a whole reply's reader may be slow: it holds no slot and no place
        self.record.status = 200
        answered(self.record, self._call, answer)
        if answer.gone:
            self._over(False)
        elif answer.error is not None:
            self._refuse(answer.error)
        else:
            try:
                body = answer.body()
            except Exception as error:
                self._refuse(unexpected(error))
                return
            self._send(200, (("Content-Type", self._call.reply.content_type),), body)

    def _refuse(self, error: EndpointError) -> None:
        response: Response = error_response(error)
        self.record.failed(error)
        headers = [(name, value) for name, value in response.headers.items() if name != "Content-Length"]
        self._send(response.status_code, headers, response.get_data())

    def _send(self, status: int, headers: tuple[Header, ...] | list[Header], body: bytes) -> None:
        self.record.status = status
        all_headers = (*headers, ("Content-Length", str(len(body))), *self._returned)
        head = self._ground.heads.head(status, all_headers, keep_alive=self._head.keep_alive, chunked=False)
        writer = self._writer = SocketWriter(
            self._socket, self._ground.loop, head, False, self._cut, lambda: self._over(writer.open)
        )
        writer.finish(body)

    def _cut(self, reason: str) -> None:
        self.record.left = reason

    def _over(self, whole: bool) -> None:
        self._ended(self, whole and self._head.keep_alive)
