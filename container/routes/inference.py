"""POST /invocations, /v1/chat/completions and /v1/completions: a body in, tokens out."""

from __future__ import annotations

from flask import Blueprint, Response, request

from container import attributes
from container.answer import answer, by_its_body
from container.custom_code import custom_response
from container.service import Service
from handler.schemas import chat, completion


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("inference", __name__)

    @routes.post("/invocations")
    def invocations() -> Response:
        if service.custom_code is not None:
            reply = custom_response(service, service.custom_code, request)
            if reply is not None:
                return reply
        return answer(service, request, by_its_body(service, request))

    @routes.post("/v1/chat/completions")
    def chat_completions() -> Response:
        return answer(service, request, chat.parse)

    @routes.post("/v1/completions")
    def completions() -> Response:
        return answer(service, request, completion.parse)

    @routes.after_request
    def with_attributes(response: Response) -> Response:
        given = request.headers.get(attributes.HEADER, "")
        if (
            given
            and attributes.HEADER not in response.headers
            and len(given) <= attributes.LONGEST
            and attributes.VISIBLE.fullmatch(given)
        ):
            response.headers[attributes.HEADER] = given
        return response

    return routes
