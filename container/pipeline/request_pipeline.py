"""One request to the engine, whatever path it came by: its place, its body, its model, its deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flask import Request, Response
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from container.pipeline.session_requests import enter, manage
from container.requests import custom_attributes as attributes
from container.requests.http_limits import TIMEOUT_HEADER, Deadline, deadline, max_body, whole_only
from container.requests.request_body import read_json
from container.requests.request_record import record_of
from container.service import Service
from container.streaming.json_lines_response import KINDS, LinesResponse
from container.streaming.token_response import TokenResponse
from container.telemetry.tracing.traced_call import followed
from handler.engine.api_routes import Route
from handler.engine.engine import Engine
from handler.schemas import dispatch
from handler.schemas.batch import lines_of
from handler.schemas.dispatch import Parse
from handler.schemas.ignored_fields import drop_ignored_fields
from handler.schemas.json_body import decode
from handler.schemas.reply import AnyCall
from handler.schemas.tgi_lmi.request_options import RequestOptions
from handler.sessions.session_errors import HEADER as SESSION_HEADER

# The adapter's inference component, as SageMaker sends it on (aws/model-hosting-container-standards, sagemaker/lora).
ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
# A multi-model endpoint's, as a client gives it; SageMaker asks by the path, and by a name of its own.
TARGET_HEADER = "X-Amzn-SageMaker-Target-Model"
# Trace context, which vLLM passes on to its spans.
TRACE_HEADERS = ("traceparent", "tracestate")


def answer(service: Service, request: Request, parse: Parse, model: str | None = None) -> Response:
    """The response to a request with one body, or with one on each line.

    :param model: what the path names; outweighs the header, which outweighs the body.
    :raises EndpointError: it cannot be answered.
    """
    began = time.monotonic()
    service.require_engine()
    config, admission = service.config, service.admission
    admission.enter()
    try:
        model = model or named_model(service, request)
        body = read_json(request, max_body(config), service.deadlines, also=KINDS)
        asked = request.headers.get(TIMEOUT_HEADER)
        record = record_of(request.environ)
        if request.mimetype in KINDS:
            until = deadline(config, asked, began, stream=False)
            service.observer.started(record, body)
            engine, admission = service.resolve_engine(model)
            return LinesResponse(engine, for_model(parse, model), lines_of(body), admission, until)
        document = decode(body)
        session = request.headers.get(SESSION_HEADER)
        managed = manage(service, document, session)
        if managed is not None:
            admission.leave()
            return managed
        engine, admission = service.resolve_engine(model or document.get("model"))
        call, until = parse_call(service, engine, request, parse, document, began, model)
        service.observer.started(record, body)
        response = TokenResponse(engine, call, admission, until, collected=whole_only(config))
        response.headers.extend(enter(service, session))
        return response
    except BaseException:
        admission.leave()
        raise


def parse_call(
    service: Service,
    engine: Engine,
    request: Request,
    parse: Parse,
    document: Mapping[str, Any],
    began: float,
    model: str | None = None,
) -> tuple[AnyCall, Deadline]:
    """What a body asks for, and when the request is ended. Noted down in its record; nothing has begun.

    :param began: monotonic seconds at which the request came.
    :raises EndpointError: it cannot be answered.
    """
    record = record_of(request.environ)
    call = for_model(parse, model or named_model(service, request))(document, engine)
    until = deadline(service.config, request.headers.get(TIMEOUT_HEADER), began, stream=call.stream)
    record.called(call)
    if record.span is not None:
        call = followed(call, record, engine.base_names[0])
    return call, until


def named_model(service: Service, request: Request) -> str | None:
    """The model that a header asks for."""
    target = request.headers.get(TARGET_HEADER) if service.config.multi_model else None
    return target or request.headers.get(ADAPTER_HEADER)


def by_its_body(service: Service, request: Request) -> Parse:
    """What reads a body of /invocations, which may be of any schema."""
    asked = RequestOptions(
        accept=accepted(request.headers.get("Accept", "")),
        attributes=attributes.parse(request.headers.get(attributes.HEADER)),
        inputs_schema=service.config.inputs_schema,
        output_formatter=service.config.output_formatter,
    )
    headers = trace_headers(request)
    # Then the model is chosen, and must be there.
    if ADAPTER_HEADER in request.headers or service.config.multi_model:
        return lambda document, engine: dispatch.parse(document, engine, asked, headers)
    return lambda document, engine: dispatch.parse(drop_ignored_fields(document, engine), engine, asked, headers)


@lru_cache(maxsize=64)
def accepted(header: str) -> tuple[str, ...]:
    """The media types of an `Accept`, the liked best first. Clients send the same few again and again."""
    return tuple(kind for kind, _ in parse_accept_header(header, MIMEAccept))


def of_route(route: Route, request: Request) -> Parse:
    """What reads a body of one of OpenAI's routes."""
    headers = trace_headers(request)
    return lambda document, engine: dispatch.parse_route(route, document, engine, headers)


def trace_headers(request: Request) -> dict[str, str]:
    """Trace context for vLLM: our own span's, or the client's."""
    own = record_of(request.environ).trace
    return own or {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}


def for_model(parse: Parse, model: str | None) -> Parse:
    """The same, with `model` put into the body."""
    if not model:
        return parse

    def with_model(document: Mapping[str, Any], engine: Engine) -> AnyCall:
        return parse({**document, "model": model}, engine)

    return with_model
