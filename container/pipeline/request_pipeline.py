"""The pipeline of every request to the engine: admission, body, model, session, deadline, call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flask import Request, Response
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from container.pipeline.session_requests import manage_session, session_headers
from container.pipeline.trial import try_suspect
from container.requests import custom_attributes
from container.requests.http_limits import TIMEOUT_HEADER, Deadline, deadline, max_body, requires_content_length
from container.requests.request_body import read_json
from container.requests.request_record import RequestRecord, record_of
from container.service import Service
from container.streaming.json_lines_response import LinesResponse
from container.streaming.token_response import TokenResponse
from container.telemetry.tracing.traced_call import traced_call
from handler.engine.api_routes import Route
from handler.engine.engine import Engine
from handler.schemas import dispatch
from handler.schemas.anthropic.messages import MessagesRoute
from handler.schemas.batch import lines_of
from handler.schemas.dispatch import Parse
from handler.schemas.json_body import decode
from handler.schemas.openai.model_names import without_unknown_model
from handler.schemas.reply import JSON_LINES, LINE_TYPES, AnyCall
from handler.schemas.tgi_lmi.request_options import RequestOptions
from handler.sessions.session_errors import HEADER as SESSION_HEADER

# An inference component's adapter, as SageMaker passes it on (aws/model-hosting-container-standards, sagemaker/lora).
ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
# The model of a multi-model endpoint, as a client names it. SageMaker itself names the model in the path.
TARGET_HEADER = "X-Amzn-SageMaker-Target-Model"
# Trace context, which vLLM uses for its own spans.
TRACE_HEADERS = ("traceparent", "tracestate")


def respond(service: Service, request: Request, parse: Parse, model: str | None = None) -> Response:
    """The response to a request with one body, or with one body on each line.

    :param model: the model in the path. It takes precedence over the header, which takes precedence over the body.
    :raises EndpointError: the request is not valid, or is not admitted.
    """
    service.require_engine()
    config, admission = service.config, service.admission
    handed = service.recovery.resumed(request.environ.get("gunicorn.socket"))
    began = time.monotonic() if handed is None else handed.note.began
    if handed is None:
        admission.enter()
    try:
        model = model or requested_model(service, request)
        # A transform job need not name the type of its lines (CreateTransformJob, TransformInput.ContentType).
        kind = request.mimetype or (JSON_LINES if config.batch_transform else "")
        limits = max_body(config), service.read_timeouts
        body = read_json(request, *limits, accepted=LINE_TYPES, media_type=kind)
        timeout = request.headers.get(TIMEOUT_HEADER)
        record, session = record_of(request.environ), request.headers.get(SESSION_HEADER)
        service.recovery.keep(record, body)
        record.began = min(began, record.began)
        # Custom code has run already, and the next process has neither this one's sessions nor its further models.
        record.may_rerun = all(each is None for each in (session, service.custom_code, service.models))
        if kind in LINE_TYPES:
            limit = deadline(config, timeout, began, stream=False)
            service.observer.started(record, body)
            engine, admission = service.resolve_engine(model)
            lines = lines_of(body)
            try_suspect(service.recovery, engine, with_model(parse, model), lines, record, limit)
            # `AssembleWith: Line` of a transform job ends each reply with a line end of its own.
            end = b"" if config.batch_transform else b"\n"
            return LinesResponse(engine, with_model(parse, model), lines, admission, limit, service.recovery, end)
        document = decode(body)
        managed = manage_session(service, document, session)
        if managed is not None:
            admission.leave()
            return managed
        engine, admission = service.resolve_engine(model or document.get("model"))
        call, limit = parse_call(service, engine, with_model(parse, model), document, record, began, timeout=timeout)
        service.observer.started(record, body)
        try_suspect(service.recovery, engine, with_model(parse, model), (body,), record, limit)
        collected = requires_content_length(config)
        response = TokenResponse(engine, call, admission, limit, service.recovery, collected=collected)
        response.headers.extend(session_headers(service, session))
        response.headers.extend(record.ignored_header)
        return response
    except BaseException:
        admission.leave()
        raise


def parse_call(
    service: Service,
    engine: Engine,
    parse: Parse,
    document: Mapping[str, Any],
    record: RequestRecord,
    began: float,
    *,
    timeout: str | None = None,
    stream: bool | None = None,
) -> tuple[AnyCall, Deadline]:
    """Parses and checks a body: the first step of every request to the engine. Nothing has begun after it.

    The request's record gets the ids and token counts of the call. With tracing the call carries the trace context.

    :param began: monotonic seconds at which the request came.
    :param timeout: the value of `TIMEOUT_HEADER`.
    :param stream: the deadline is that of a stream; None: as the body asks.
    :raises EndpointError: the body is not valid, or the engine rejects it.
    """
    call = parse(document, engine)
    limit = deadline(service.config, timeout, began, stream=call.stream if stream is None else stream)
    record.parsed(call)
    if record.span is not None:
        call = traced_call(call, record, engine.base_names[0])
    return call, limit


def requested_model(service: Service, request: Request) -> str | None:
    """The model that a header names."""
    target = request.headers.get(TARGET_HEADER) if service.config.multi_model else None
    return target or request.headers.get(ADAPTER_HEADER)


def body_parser(service: Service, request: Request) -> Parse:
    """The parser of a body of /invocations, which may have any schema."""
    options = RequestOptions(
        accept=accepted_types(request.headers.get("Accept", "")),
        attributes=custom_attributes.parse(request.headers.get(custom_attributes.HEADER)),
        inputs_schema=service.config.inputs_schema,
        output_formatter=service.config.output_formatter,
    )
    trace = trace_headers(request)
    # In these cases the `model` field selects a model.
    if ADAPTER_HEADER in request.headers or service.config.multi_model:
        return lambda document, engine: dispatch.parse(document, engine, options, trace)
    return lambda document, engine: dispatch.parse(without_unknown_model(document, engine), engine, options, trace)


@lru_cache(maxsize=64)
def accepted_types(header: str) -> tuple[str, ...]:
    """The media types of an `Accept` header, the preferred one first. Cached: clients send the same few."""
    return tuple(kind for kind, _ in parse_accept_header(header, MIMEAccept))


def route_parser(path: Route | MessagesRoute, request: Request) -> Parse:
    """The parser of a body of one path of OpenAI's API or of Anthropic's."""
    trace = trace_headers(request)
    return lambda document, engine: dispatch.parse_path(path, document, engine, trace)


def trace_headers(request: Request) -> dict[str, str]:
    """The trace context for vLLM: our own span's, or the client's."""
    own = record_of(request.environ).trace
    return own or {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}


def with_model(parse: Parse, model: str | None) -> Parse:
    """The same parser, with `model`, if there is one, put into the body."""
    return (lambda document, engine: parse({**document, "model": model}, engine)) if model else parse
