"""Makes the parser of a request's body, from the path and the headers that say what the body means."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header
from werkzeug.wrappers import Request

from container.requests import custom_attributes
from container.requests.request_record import record_of
from container.service import Service
from handler.engine.api_routes import Route
from handler.schemas import dispatch
from handler.schemas.anthropic.message_fields import MessagesRoute
from handler.schemas.dispatch import Parse
from handler.schemas.openai.model_names import ADAPTER_HEADER, without_unknown_model
from handler.schemas.reply import LINE_TYPES
from handler.schemas.tgi_lmi.request_options import RequestOptions

# The model of a multi-model endpoint, as a client names it. SageMaker itself names the model in the path.
TARGET_HEADER = "X-Amzn-SageMaker-Target-Model"
# Trace context, which vLLM uses for its own spans.
TRACE_HEADERS = ("traceparent", "tracestate")

ParserOf = Callable[[Service, Request], Parse]


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
        # A line of a body of lines cannot be a stream.
        output_formatter=None if request.mimetype in LINE_TYPES else service.config.output_formatter,
    )
    trace = trace_headers(request)
    # In these cases the `model` field selects a model.
    if ADAPTER_HEADER in request.headers or service.config.multi_model:
        return partial(dispatch.parse, options=options, headers=trace)
    return lambda document, engine: dispatch.parse(without_unknown_model(document, engine), engine, options, trace)


@lru_cache(maxsize=64)
def accepted_types(header: str) -> tuple[str, ...]:
    """The media types of an `Accept` header without their parameters, the preferred one first; not those of quality 0.

    Cached: clients send the same few.
    """
    kinds = parse_accept_header(header, MIMEAccept)
    return tuple(kind.partition(";")[0].strip().lower() for kind, quality in kinds if quality)


def route_parser(path: Route | MessagesRoute) -> ParserOf:
    """The parsers of bodies of one path of OpenAI's API or of Anthropic's."""

    def parser_of(service: Service, request: Request) -> Parse:
        return partial(dispatch.parse_path, path, headers=trace_headers(request))

    return parser_of


def trace_headers(request: Request) -> dict[str, str]:
    """The trace context for vLLM: our own span's, or the client's."""
    own = record_of(request.environ).trace
    return own or {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}


def with_model(parse: Parse, model: str | None) -> Parse:
    """The same parser, with `model`, if there is one, put into the body."""
    return (lambda document, engine: parse({**document, "model": model}, engine)) if model else parse
