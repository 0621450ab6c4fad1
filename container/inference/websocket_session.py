"""GET /invocations-bidirectional-stream: a WebSocket, for SageMaker's InvokeEndpointWithBidirectionalStream.

Each message of the client is a body of /invocations. Each JSON document of the reply, or the error, is one frame.
"""

from __future__ import annotations

from wsproto.frame_protocol import CloseReason

from container.http.body_budget import BodyBytes
from container.http.exchange import Exchange
from container.inference.body_parsers import body_parser, with_model
from container.inference.pipeline import Pipeline, parse_call
from container.inference.sinks import WebSocketSink, WholeSink, send_documents
from container.inference.trial import try_suspect
from container.inference.websocket import WebSocket
from container.requests.error_responses import unexpected
from container.requests.request_record import RequestRecord
from container.service import Service
from handler.errors import Draining, EndpointError
from handler.schemas.anthropic.message_reply import error_body
from handler.schemas.framing import body_size, reply_size
from handler.schemas.json_body import decode
from handler.schemas.openai.model_names import ADAPTER_HEADER
from handler.startup.lifecycle import ServingStatus


class WebSocketSession:
    """One bidirectional stream. It holds an admission only while a message is being answered.

    Each message is a request of its own in the log, in the metrics and in traces.
    """

    def __init__(self, service: Service, pipeline: Pipeline, exchange: Exchange) -> None:
        self._service, self._pipeline = service, pipeline
        self._environ, self._route = exchange.head.environ, exchange.record.route
        self._engine = service.ready_engine()
        request = exchange.request
        self._parse = with_model(body_parser(service, request), request.headers.get(ADAPTER_HEADER))
        self._socket = WebSocket(exchange.connection, service.loop, service.bodies, self.answer)

    def begin(self, exchange: Exchange) -> None:
        """Answers the handshake, unless the client has left."""
        if not exchange.open:
            return
        exchange.become(self._socket, self._socket.begin(self._environ))

    async def answer(self, message: bytes) -> None:
        """Answers one message."""
        service, record = self._service, self._new_record()
        taken = BodyBytes(service.bodies)
        try:
            service.ready_engine()
            taken.take(len(message))
            with service.admission:
                await self._run(message, record)
        except EndpointError as error:
            self._send_error(error, record)
        except Exception as error:
            self._send_error(unexpected(error), record)
        finally:
            taken.release()
            record.body = b""
            service.observer.ended(record)
            if service.lifecycle.status.state is not ServingStatus.READY:
                self._socket.close(CloseReason.GOING_AWAY, Draining().message)

    def _new_record(self) -> RequestRecord:
        """The record of a message. The headers are those of the handshake."""
        record = RequestRecord(self._environ)
        record.route, record.status = self._route, 200
        self._service.observer.began(record, self._environ)
        return record

    async def _run(self, message: bytes, record: RequestRecord) -> None:
        service, engine, threads = self._service, self._engine, self._pipeline.threads
        size = body_size(message, engine)
        service.recovery.keep(record, message)
        document = await threads.run(size, decode, message)
        call, limit = await threads.run(size, parse_call, service, engine, self._parse, document, record, None, True)
        service.observer.started(record, message)
        await try_suspect(service.recovery, engine, self._parse, (message,), record, limit, threads, self._socket)
        sink = WebSocketSink(call.reply, send=self._socket.send) if call.stream else WholeSink(call.reply)
        await self._pipeline.complete(record, engine, call, sink, limit, size, self._socket)
        service.recovery.failed(sink.error, record, self._environ)
        if sink.error is not None:
            raise sink.error
        if isinstance(sink, WholeSink) and self._socket.open:
            send_documents(await threads.run(reply_size(call), sink.body), self._socket.send)

    def _send_error(self, error: EndpointError, record: RequestRecord) -> None:
        record.status = error.status
        record.failed(error)
        self._socket.send(error_body(error, of_message=record.of_message).decode())
