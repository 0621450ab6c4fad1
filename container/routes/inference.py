"""POST /invocations, /v1/chat/completions and /v1/completions: a body in, tokens out."""

from __future__ import annotations

import time

from flask import Blueprint, Request, Response, request

from container.body import read_json
from container.limits import TIMEOUT_HEADER, deadline, max_body, whole_only
from container.lines_response import KINDS, LinesResponse
from container.service import Service
from container.token_response import TokenResponse
from handler.batch import lines_of
from handler.schemas import chat, completion, dispatch
from handler.schemas.asked import Asked
from handler.schemas.body import decode
from handler.schemas.dispatch import Parse


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("inference", __name__)
    config = service.config

    def respond(parse: Parse) -> Response:
        began = time.monotonic()
        engine = service.ready_engine()
        service.admission.enter()
        try:
            body = read_json(request, max_body(config), service.deadlines, also=KINDS)
            if request.mimetype in KINDS:
                until = deadline(config, request.headers.get(TIMEOUT_HEADER), began, stream=False)
                return LinesResponse(engine, parse, lines_of(body), service.admission, until)
            call = parse(decode(body), engine)
            until = deadline(config, request.headers.get(TIMEOUT_HEADER), began, stream=call.stream)
            return TokenResponse(engine, call, service.admission, until, collected=whole_only(config))
        except BaseException:
            service.admission.leave()
            raise

    @routes.post("/invocations")
    def invocations() -> Response:
        asked = asked_of(request, service)
        return respond(lambda document, engine: dispatch.parse(document, engine, asked))

    @routes.post("/v1/chat/completions")
    def chat_completions() -> Response:
        return respond(chat.parse)

    @routes.post("/v1/completions")
    def completions() -> Response:
        return respond(completion.parse)

    return routes


def asked_of(request: Request, service: Service) -> Asked:
    """What a request to /invocations says beside its body."""
    return Asked(
        accept=tuple(kind for kind, _ in request.accept_mimetypes),
        inputs_schema=service.config.inputs_schema,
        output_formatter=service.config.output_formatter,
    )
