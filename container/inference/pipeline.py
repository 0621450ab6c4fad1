"""The path of every request to the engine: admission, media type, body, model, session, deadline, call, outcome.

The routes differ in the parser of their bodies, and the replies in their sink. Nothing is recorded for another run, and
nothing has begun, before it is known which engine answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from container.http.exchange import CLIENT_CLOSED, Exchange
from container.inference.body_parsers import ParserOf, requested_model, with_model
from container.inference.session_requests import close_unseen, manage_session, session_headers
from container.inference.sinks import CallSink, Client, CollectingSink, EventSink, WholeSink
from container.inference.trial import try_suspect
from container.requests.deadline import TIMEOUT_HEADER, Deadline, deadline, requires_content_length
from container.requests.error_responses import unexpected
from container.requests.request_body import FORM, decode_form, require_json
from container.requests.request_record import RequestRecord
from container.service import Service
from container.telemetry.tracing.span_attributes import reply_attributes, traced_call
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.engine import Engine
from handler.engine.event_loop import WorkThreads
from handler.errors import EndpointError
from handler.schemas.batch import Batch, lines_of
from handler.schemas.dispatch import Parse
from handler.schemas.framing import body_size, reply_size, unframed
from handler.schemas.json_body import decode
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.vllm_path import ServedCall
from handler.schemas.reply import JSON_LINES, LINE_TYPES, AnyCall, RunningCall
from handler.schemas.request_fields import MAX_UNKNOWN
from handler.sessions.session_store import HEADER as SESSION_HEADER

FORM_TYPES = LINE_TYPES | {FORM}
STREAM_HEADERS = (("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no"))


class Pipeline:
    """Answers the requests to the engines of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.threads = WorkThreads()

    async def respond(
        self, exchange: Exchange, parser_of: ParserOf, model: str | None = None, *, forms: bool = False
    ) -> None:
        """Answers a request with one body, or with one body on each line.

        :param parser_of: makes the parser of the route's bodies.
        :param forms: a body may be a form with an audio file.
        :param model: the model in the path. It takes precedence over the header, which takes precedence over the body.
        :raises EndpointError: the request is not valid, is not admitted, or fails before its first token.
        """
        service, config, admission = self._service, self._service.config, self._service.admission
        request, record, note = exchange.request, exchange.record, exchange.note
        counted, exchange.admitted = exchange.admitted, False
        if not counted and note is None:
            service.require_engine()
            admission.enter()
        elif not counted:  # an earlier process has admitted it
            admission.enter_again()
        try:
            if counted or note is not None:
                service.require_engine()
                record.began = record.began if note is None else note.began
            model = model or requested_model(service, request)
            # A transform job need not name the type of its lines (CreateTransformJob, TransformInput.ContentType).
            kind = request.mimetype or (JSON_LINES if config.batch_transform else "")
            require_json(request, kind, accepted=FORM_TYPES if forms else LINE_TYPES)
            body, timeout = exchange.body, request.headers.get(TIMEOUT_HEADER)
            parse, session = with_model(parser_of(service, request), model), request.headers.get(SESSION_HEADER)
            if kind in LINE_TYPES:
                limit = deadline(config, timeout, record.began, stream=False)
                lines = lines_of(body, bounded=not config.batch_transform)
                engine, admission = service.resolve_engine(model)
                self._keep(record, body, session)
                exchange.headers.extend(session_headers(service, session).items())
                service.observer.started(record, body)
                await try_suspect(service.recovery, engine, parse, lines, record, limit, self.threads, exchange)
                try:
                    await self._answer_lines(exchange, engine, parse, lines, limit)
                except EndpointError as error:
                    self._failed(exchange, error, limit)
                return
            read = partial(decode_form, request.headers["Content-Type"]) if kind == FORM else decode
            document = await self.threads.run(len(body), read, body)
            if manage_session(service, exchange, document, session):
                return
            engine, admission = service.resolve_engine(model or document.get("model"))
            self._keep(record, body, session)
            size = body_size(body, engine)
            call, limit = await self.threads.run(size, parse_call, service, engine, parse, document, record, timeout)
            service.observer.started(record, body)
            await try_suspect(service.recovery, engine, parse, (body,), record, limit, self.threads, exchange, read)
            exchange.headers.extend(session_headers(service, session).items())
            exchange.headers.extend(record.ignored_header)
            await self._run(exchange, engine, call, limit, size)
        finally:
            admission.leave()

    def _keep(self, record: RequestRecord, body: bytes, session: str | None) -> None:
        """Keeps a body in case the engine dies.

        :raises BodyQuarantined: the engine has died of it alone.
        """
        service = self._service
        service.recovery.keep(record, body)
        # Custom code has run already, and the next process has neither this one's sessions nor its further models.
        record.may_rerun = all(each is None for each in (session, service.custom_code, service.models))

    async def _answer_lines(
        self, exchange: Exchange, engine: Engine, parse: Parse, lines: list[bytes], limit: Deadline
    ) -> None:
        """Answers JSON Lines with JSON Lines, in the same order. The lines share the slots of one request.

        :raises EndpointError: the engine failed, so that the client tries again instead of storing errors.
        """

        def begin(call: RunningCall) -> None:
            try:
                call.begin(limit.remaining(), limit.error())
            except Exception as error:
                call.end(unexpected(error))  # the other lines go on

        GROUP.set(RequestGroup())  # in the context of the task that answers this request
        batch = Batch(engine, parse, engine.slots, limit.remaining, limit.error(), begin, self.threads.run)
        exchange.left = batch.leave
        replies = await batch.run(lines) if exchange.open else None
        if replies is None:
            return
        exchange.record.ignored = tuple(batch.ignored)[:MAX_UNKNOWN]
        exchange.headers.extend(exchange.record.ignored_header)
        # `AssembleWith: Line` of a transform job ends each reply with a line end of its own.
        end = b"" if self._service.config.batch_transform else b"\n"
        exchange.send(200, (("Content-Type", JSON_LINES),), b"\n".join(replies) + end)

    async def _run(self, exchange: Exchange, engine: Engine, call: AnyCall, limit: Deadline, size: float) -> None:
        """Runs a call and sends its reply.

        :param size: of the body.
        """
        sink: WholeSink | CollectingSink | EventSink
        if not call.stream:
            sink = WholeSink(call.reply)
        elif requires_content_length(self._service.config):
            sink = CollectingSink(call.reply)
        else:
            sink = EventSink(call.reply, exchange=exchange)
            exchange.begin(200, (("Content-Type", call.reply.stream_content_type), *STREAM_HEADERS))
        await self.complete(exchange.record, engine, call, sink, limit, size, exchange)
        error, sink.error = sink.error, None  # its traceback may refer to the sink
        if error is not None:
            self._failed(exchange, error, limit)
        elif isinstance(sink, EventSink):
            exchange.finish(*sink.last)
        elif exchange.open:
            body = await self.threads.run(reply_size(call), sink.body)
            kind = call.reply.stream_content_type if call.stream else call.reply.content_type
            exchange.send(200, (("Content-Type", kind), *(STREAM_HEADERS if call.stream else ())), body)

    async def complete(
        self,
        record: RequestRecord,
        engine: Engine,
        call: AnyCall,
        sink: CallSink,
        limit: Deadline,
        size: float,
        client: Client,
    ) -> None:
        """Runs a call until it has ended, in any way, and records how.

        :param size: of its body.
        """
        sink.running = await self.threads.run(size, call.request, engine, sink)
        client.left = sink.client_left
        try:
            if client.open:
                sink.running.begin(limit.remaining(), limit.error())
                await sink.ended
            else:
                sink.left_reason = CLIENT_CLOSED
        except BaseException:
            sink.running.cancel()
            raise
        finally:  # each refers to the other
            client.left = sink.running = None
        record_outcome(record, call, sink)

    def _failed(self, exchange: Exchange, error: EndpointError, limit: Deadline) -> None:
        """Sends an error, unless the next serving process answers the request, because the engine has died."""
        descriptor = None if exchange.sent or not exchange.open else exchange.connection.descriptor()
        recovery, environ = self._service.recovery, exchange.head.environ
        if recovery.failed(error, exchange.record, environ, descriptor, limit):
            exchange.record.failed(error)
            exchange.hand_over()
        else:
            close_unseen(self._service, exchange)
            exchange.fail(error)


def parse_call(
    service: Service,
    engine: Engine,
    parse: Parse,
    document: Mapping[str, Any],
    record: RequestRecord,
    timeout: str | None = None,
    stream: bool | None = None,
) -> tuple[AnyCall, Deadline]:
    """Parses and checks a body: the first step of every request to the engine. Nothing has begun after it.

    The request's record gets the ids and token counts of the call. With tracing the call carries the trace context.

    :param timeout: the value of `TIMEOUT_HEADER`.
    :param stream: the deadline is that of a stream; None: as the body asks.
    :raises EndpointError: the body is not valid, or the engine rejects it.
    """
    call = parse(document, engine)
    limit = deadline(service.config, timeout, record.began, stream=call.stream if stream is None else stream)
    record.parsed(call)
    if record.span is not None:
        call = traced_call(call, record, engine.base_names[0])
    return call, limit


def record_outcome(record: RequestRecord, call: AnyCall, sink: CallSink) -> None:
    """Writes the end of a call into its request's record: times, tokens, finish reason, error, client that left."""
    record.first_token, record.last_token = sink.first_token, sink.last_token
    record.end, record.left = sink.finish, sink.left_reason or record.left
    inner, tokens = unframed(call), sink.tokens
    if tokens is not None and isinstance(inner, ServedCall | MultipleCall):  # these have counted their own tokens
        record.prompt_tokens, record.output_tokens = inner.tokens.prompt, inner.tokens.output
        record.end = inner.tokens.finish if sink.finish is not None else None
    elif tokens is not None:
        record.output_tokens = tokens
    if sink.error is not None:
        record.failed(sink.error)
    if record.span is not None and isinstance(inner, ServedCall):
        record.span_attributes = {**record.span_attributes, **reply_attributes(inner.reply.document)}
