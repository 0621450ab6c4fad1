"""The paths that ask an engine for something. The URL alone decides that the pipeline answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from flask import Blueprint, Response

from container.http.exchange import Exchange
from container.inference.body_parsers import ParserOf, body_parser, route_parser
from container.inference.pipeline import Pipeline
from container.service import Service
from handler.engine.api_routes import ALIASES, SPEECH, Route
from handler.errors import UpgradeRequired
from handler.schemas.anthropic.message_fields import MessagesRoute

INVOCATIONS = "/invocations"
WEBSOCKET = "/invocations-bidirectional-stream"
# The path of a model of a multi-model endpoint, as SageMaker sends it.
MODEL, INVOKE = "/models/", "/invoke"
MODEL_RULE = f"{MODEL}<path:name>{INVOKE}"

# The paths whose bodies may be forms.
FORMS: Final = frozenset((INVOCATIONS, *SPEECH))

Answer = Callable[[Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class InferenceRoute:
    """:param rule: the path, or the pattern of paths, as Flask writes it. The log and the metrics have it."""

    rule: str
    answer: Answer


def parsers() -> Iterator[tuple[str, ParserOf]]:
    """The parser of each path's bodies."""
    yield INVOCATIONS, body_parser
    for route in (*Route, *MessagesRoute):
        yield route.value, route_parser(route)
    for path, alias in ALIASES.items():
        yield path, route_parser(alias)


class InferenceRoutes:
    """Finds the answer to a request."""

    def __init__(self, service: Service, pipeline: Pipeline) -> None:
        self._service, self._pipeline = service, pipeline
        self._routes: Mapping[str, InferenceRoute] = {
            path: InferenceRoute(path, partial(pipeline.respond, parser_of=parser_of, forms=path in FORMS))
            for path, parser_of in parsers()
        }

    def find(self, exchange: Exchange) -> InferenceRoute | None:
        """The route of a request. None: Flask answers it."""
        path = exchange.path
        if exchange.head.upgrades:
            return InferenceRoute(WEBSOCKET, self._converse) if path == WEBSOCKET and exchange.method == "GET" else None
        if exchange.method != "POST":
            return None
        route = self._routes.get(path) or self._routes.get(path.rstrip("/"))
        if route is None and self._service.config.multi_model and path.startswith(MODEL):
            name = path.rstrip("/").removeprefix(MODEL).removesuffix(INVOKE)
            if name and path.rstrip("/") == f"{MODEL}{name}{INVOKE}":
                return InferenceRoute(MODEL_RULE, partial(self._invoke, name))
        return route

    async def _invoke(self, name: str, exchange: Exchange) -> None:
        engine = self._service.engine
        if engine is None or name not in engine.base_names:
            self._service.model(name)
        await self._pipeline.respond(exchange, body_parser, model=name, forms=True)

    async def _converse(self, exchange: Exchange) -> None:
        from container.inference.websocket_session import WebSocketSession  # wsproto: few endpoints need it

        WebSocketSession(self._service, self._pipeline, exchange).begin(exchange)


def blueprint(service: Service) -> Blueprint:
    """The paths as Flask has to know them: for other methods, and for GET /openapi.json."""
    routes = Blueprint("inference", __name__)

    def answered_before(**values: str) -> Response:
        raise AssertionError("the pipeline answers a POST to this path")

    paths = [path for path, _ in parsers()] + ([MODEL_RULE] if service.config.multi_model else [])
    for path in paths:
        endpoint = path.strip("/").replace("/", "_").partition("<")[0]
        routes.add_url_rule(path, endpoint=endpoint, view_func=answered_before, methods=["POST"])

    @routes.get(WEBSOCKET)
    def plain() -> Response:
        raise UpgradeRequired(WEBSOCKET)

    return routes
