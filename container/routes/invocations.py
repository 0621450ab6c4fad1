"""POST /invocations and the routes of OpenAI's API and Anthropic's."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response, request

from container.pipeline.request_pipeline import body_parser, respond, route_parser
from container.requests import custom_attributes
from container.service import Service
from handler.engine.api_routes import ALIASES, Route
from handler.schemas.anthropic.messages import MessagesRoute


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("inference", __name__)

    def view(route: Route | MessagesRoute) -> Callable[[], Response]:
        return lambda: respond(service, request, route_parser(route, request))

    @routes.post("/invocations")
    def invocations() -> Response:
        return respond(service, request, body_parser(service, request))

    for route in (*Route, *MessagesRoute):
        routes.add_url_rule(route, endpoint=route.name.lower(), view_func=view(route), methods=["POST"])
    for path, alias in ALIASES.items():
        routes.add_url_rule(path, endpoint=path.strip("/").replace("/", "_"), view_func=view(alias), methods=["POST"])

    @routes.after_request
    def with_attributes(response: Response) -> Response:
        given = custom_attributes.returned(request.headers.get(custom_attributes.HEADER))
        if given is not None and custom_attributes.HEADER not in response.headers:
            response.headers[custom_attributes.HEADER] = given
        return response

    return routes
