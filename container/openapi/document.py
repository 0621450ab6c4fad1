"""GET /openapi.json: the endpoint's OpenAPI 3.1 document, built from the application's routes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from flask import Blueprint, Response, current_app
from werkzeug.routing import Rule

from container.openapi.bodies import NAMES, REF, Schema, bodies
from container.openapi.operations import OPERATIONS, OWN_CODE_INVOCATION
from container.openapi.replies import PLAIN_REPLY, REPLIES
from container.service import Service
from handler.engine.api_routes import Route
from handler.schemas.reply import encode

ARGUMENT: Final = re.compile(r"<(?:\w+:)?(\w+)>")
# Methods that werkzeug and Flask answer themselves.
AUTOMATIC_METHODS: Final = frozenset(("HEAD", "OPTIONS"))


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("openapi", __name__)
    lock = threading.Lock()
    cached: list[bytes] = []

    @routes.get("/openapi.json")
    def openapi() -> Response:
        """The document. It is cached at the first request: the schemas of vLLM's models take 3 s."""
        service.lifecycle.require_ready()
        with lock:
            if not cached:
                serving = None if service.engine is None else service.engine.serving
                rules = current_app.url_map.iter_rules()
                schemas = () if serving is None else serving.schemas()
                cached.append(encode(document(rules, *schemas, own_code=service.custom_code is not None)))
        return Response(cached[0], content_type="application/json")

    return routes


def document(
    rules: Iterable[Rule],
    requests: Mapping[Route, Schema] | None = None,
    replies: Mapping[Route, Schema] | None = None,
    parts: Mapping[str, Schema] | None = None,
    *,
    own_code: bool = False,
) -> dict[str, Any]:
    """An OpenAPI 3.1 document.

    :param rules: the application's rules.
    :param requests, replies, parts: schemas of vLLM's models: bodies and replies by route, and the parts they refer to.
    :param own_code: the model's own code answers /invocations.
    :raises KeyError: a route has no entry in `OPERATIONS`.
    """
    paths: dict[str, dict[str, Any]] = {}
    for rule in rules:
        if rule.websocket:
            continue
        path = ARGUMENT.sub(r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - AUTOMATIC_METHODS):
            operation_document = OPERATIONS[method, path].document(method)
            if own_code and path == "/invocations":
                operation_document = OWN_CODE_INVOCATION.document(method)
                operation_document["responses"]["default"] = {"description": "The code's reply."}
            operation_document["operationId"] = rule.endpoint.replace(".", "_")
            names = ARGUMENT.findall(rule.rule)
            if names:
                path_parameters = [
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
                ]
                operation_document["parameters"] = path_parameters + operation_document.get("parameters", [])
            paths.setdefault(path, {})[method.lower()] = operation_document
    schemas = {**bodies(requests or {}), **REPLIES, **(parts or {})}
    for route, name in NAMES.items():
        schemas.setdefault(f"{name}Request", PLAIN_REPLY)
        schemas[f"{name}Reply"] = (replies or {}).get(route, PLAIN_REPLY)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "neuron-endpoint",
            "version": _version(),
            "description": "A SageMaker inference container for large language models.",
        },
        "servers": [{"url": "/"}],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {"schemas": _used(paths, schemas)},
    }


def _used(paths: object, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The components that the paths refer to, directly or through others."""
    used: dict[str, Schema] = {}
    pending = list(_refs(paths))
    while pending:
        name = pending.pop()
        if name not in used:
            used[name] = schemas[name]
            pending += _refs(schemas[name])
    return {name: used[name] for name in sorted(used)}


def _refs(value: object) -> Iterable[str]:
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str) and target.startswith(REF):
            yield target.removeprefix(REF)
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _refs(item)


def _version() -> str:
    try:
        return version("neuron-endpoint")
    except PackageNotFoundError:
        return "0"
