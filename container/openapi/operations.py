"""The summary, body, replies and errors of each route, by method and path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from container.inference.body_parsers import TARGET_HEADER, TRACE_HEADERS
from container.inference.inference_routes import WEBSOCKET as BIDIRECTIONAL
from container.openapi import failures
from container.openapi.bodies import NAMES, TEXT, Schema, ref
from container.requests import custom_attributes
from container.requests.deadline import TIMEOUT_HEADER
from container.requests.request_body import FORM
from container.routes.adapter_routes import ALIAS_HEADER
from handler.engine.api_routes import ALIASES, SPEECH, Route
from handler.errors import ForeignOrigin
from handler.schemas.anthropic.message_fields import MessagesRoute
from handler.schemas.openai.model_names import ADAPTER_HEADER
from handler.schemas.reply import JSON_LINES, SSE
from handler.sessions.session_store import HEADER as SESSION_HEADER

JSON: Final = "application/json"
LINES: Final[Schema] = {"type": "string", "description": "One JSON document a line."}
EVENTS: Final[Schema] = {"type": "string", "description": "Server-sent events; the data of each is a JSON document."}


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}


HEADERS: Final[tuple[Schema, ...]] = (
    _header(custom_attributes.HEADER, "key=value pairs, separated by semicolons: schema, route, trace_id ..."),
    _header(ADAPTER_HEADER, "The adapter or model that answers. It takes precedence over the body's 'model'."),
    _header(ALIAS_HEADER, "The adapter's name for people. It is logged."),
    _header(TARGET_HEADER, "The same on a multi-model endpoint. It takes precedence over the adapter header."),
    _header(SESSION_HEADER, "A session's id, or NEW_SESSION."),
    _header(TIMEOUT_HEADER, "Seconds after which the request is ended, 1 to 3600."),
    *(_header(name, "W3C trace context.") for name in TRACE_HEADERS),
)
PAGE: Final[tuple[Schema, ...]] = tuple(
    {
        "name": name,
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": minimum, "maximum": 999999999},
    }
    for name, minimum in (("limit", 1), ("next_page_token", 0))
)
LISTED: Final[tuple[Schema, ...]] = (
    PAGE[0],
    {"name": "after", "in": "query", "required": False, "schema": {"type": "string"}},
    {"name": "order", "in": "query", "required": False, "schema": {"enum": ["asc", "desc"]}},
)
LISTED_FILES: Final = (*LISTED, {"name": "purpose", "in": "query", "required": False, "schema": {"type": "string"}})


@dataclass(frozen=True, slots=True)
class RouteOperation:
    """One method of one path.

    :param body: schemas by media type; empty for no body.
    :param replies: by status, schemas by media type; empty for no body.
    """

    summary: str
    body: Mapping[str, Schema] = field(default_factory=dict)
    replies: Mapping[int, Mapping[str, Schema]] = field(default_factory=dict)
    errors: failures.Errors = ()
    parameters: tuple[Schema, ...] = ()

    def document(self, method: str) -> dict[str, Any]:
        operation: dict[str, Any] = {"summary": self.summary}
        if self.parameters:
            operation["parameters"] = list(self.parameters)
        if self.body:
            operation["requestBody"] = {"required": True, "content": _content(self.body)}
        replies = {str(status): _reply(content) for status, content in self.replies.items()}
        origin = () if method == "GET" else (ForeignOrigin,)
        operation["responses"] = {**failures.responses((*self.errors, *origin)), **replies}
        return operation


def _content(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}


def _reply(content: Mapping[str, Schema]) -> dict[str, Any]:
    return {"description": "The reply.", **({"content": _content(content)} if content else {})}


def _served(route: Route) -> RouteOperation:
    name = NAMES[route]
    return RouteOperation(
        f"OpenAI's or vLLM's API: {name.lower()}",
        {FORM: ref(f"{name}Request")} if route in SPEECH else {JSON: ref(f"{name}Request"), JSON_LINES: LINES},
        {
            200: {
                JSON: ref(f"{name}Reply"),
                SSE: EVENTS,
                **({"text/plain": TEXT} if route in SPEECH else {JSON_LINES: LINES}),
            }
        },
        failures.TOKENS,
        HEADERS,
    )


ANY_REPLY: Final[Schema] = {
    "anyOf": [
        *(ref(f"{name}Reply") for name in NAMES.values()),
        ref("MessageReply"),
        ref("InputsReply"),
        ref("Session"),
    ]
}
INVOCATION: Final = RouteOperation(
    "A body of any schema: OpenAI, TGI or LMI",
    {JSON: ref("Invocation"), JSON_LINES: LINES, FORM: ref(f"{NAMES[Route.TRANSCRIPTIONS]}Request")},
    {200: {JSON: ANY_REPLY, SSE: EVENTS, JSON_LINES: LINES, "text/plain": TEXT}},
    failures.TOKENS,
    HEADERS,
)
# With the model's own code: any body, any reply, and any status.
OWN_CODE_INVOCATION: Final = RouteOperation(
    "A body for the model's own code", {"*/*": {}}, {200: {"*/*": {}}}, (*failures.TOKENS, *failures.OWN_CODE), HEADERS
)


def _json(
    summary: str, reply: str, errors: failures.Errors, parameters: tuple[Schema, ...] = (), *, body: str = ""
) -> RouteOperation:
    """An operation whose reply, and whose body if it has one, are JSON documents."""
    return RouteOperation(summary, {JSON: ref(body)} if body else {}, {200: {JSON: ref(reply)}}, errors, parameters)


HEALTH: Final = RouteOperation(
    "Health: 200 once it serves", {}, {200: {}, 503: {JSON: ref("Progress")}, 500: {JSON: ref("Progress")}}
)
OPERATIONS: Final[Mapping[tuple[str, str], RouteOperation]] = {
    ("GET", "/ping"): HEALTH,
    ("GET", "/health"): HEALTH,
    ("POST", "/invocations"): INVOCATION,
    **{("POST", path): _served(route) for path, route in (*((str(each), each) for each in Route), *ALIASES.items())},
    ("POST", str(MessagesRoute.MESSAGES)): RouteOperation(
        "Anthropic's API: a message",
        {JSON: ref("MessageRequest"), JSON_LINES: LINES},
        {200: {JSON: ref("MessageReply"), SSE: EVENTS, JSON_LINES: LINES}},
        failures.TOKENS,
        HEADERS,
    ),
    ("POST", str(MessagesRoute.COUNT)): RouteOperation(
        "Anthropic's API: the tokens of a message",
        {JSON: ref("CountRequest"), JSON_LINES: LINES},
        {200: {JSON: ref("CountReply"), JSON_LINES: LINES}},
        failures.TOKENS,
        HEADERS,
    ),
    ("GET", "/v1/models"): _json("The names of the served models", "ModelList", failures.NAMED),
    ("GET", "/v1/models/{name}"): _json("One served model", "ServedModel", failures.ONE_MODEL),
    ("GET", "/metrics"): RouteOperation("Metrics as Prometheus text", {}, {200: {"text/plain": TEXT}}),
    ("GET", "/execution-parameters"): _json(
        "How batch transform should send its records", "ExecutionParameters", failures.NAMED
    ),
    ("POST", "/adapters"): _json("Load a LoRA adapter", "AdapterDone", failures.LOADED, body="AdapterFields"),
    ("GET", "/adapters"): _json("The adapters", "AdapterList", (*failures.NAMED, *failures.PAGED), PAGE),
    ("POST", "/adapters/{name}"): _json(
        "Replace an adapter's files", "AdapterDone", failures.LOADED, body="AdapterFields"
    ),
    ("GET", "/adapters/{name}"): _json("One adapter", "Adapter", failures.NAMED),
    ("DELETE", "/adapters/{name}"): _json("Unload an adapter", "AdapterDone", failures.NAMED),
    ("POST", "/v1/files"): RouteOperation(
        "Upload the input of a batch", {FORM: ref("FileForm")}, {200: {JSON: ref("FileObject")}}, failures.BATCH_BODY
    ),
    ("GET", "/v1/files"): _json("The files", "FileList", failures.BATCHES, LISTED_FILES),
    ("GET", "/v1/files/{identity}"): _json("One file", "FileObject", failures.BATCHES),
    ("GET", "/v1/files/{identity}/content"): RouteOperation(
        "The content of a file", {}, {200: {"application/octet-stream": TEXT}}, failures.BATCHES
    ),
    ("DELETE", "/v1/files/{identity}"): _json("Delete a file", "FileGone", failures.BATCHES),
    ("POST", "/v1/batches"): _json(
        "Run a file of requests while the engine is idle", "BatchObject", failures.NEW_BATCH, body="BatchFields"
    ),
    ("GET", "/v1/batches"): _json("The batches", "BatchList", failures.BATCHES, LISTED),
    ("GET", "/v1/batches/{identity}"): _json("One batch", "BatchObject", failures.BATCHES),
    ("POST", "/v1/batches/{identity}/cancel"): _json("Cancel a batch", "BatchObject", failures.CANCELLED),
    ("POST", "/models"): _json("Load a model", "Model", failures.LOADED_MODEL, body="ModelFields"),
    ("GET", "/models"): _json("The models", "ModelPage", (*failures.NAMED, *failures.PAGED), PAGE),
    ("GET", "/models/{name}"): _json("One model", "Model", failures.ONE_MODEL),
    ("DELETE", "/models/{name}"): _json("Unload a model", "ModelGone", failures.ONE_MODEL),
    ("POST", "/models/{name}/invoke"): RouteOperation(
        "/invocations of one model", INVOCATION.body, INVOCATION.replies, (*failures.TOKENS, *failures.NAMED), HEADERS
    ),
    ("GET", BIDIRECTIONAL): RouteOperation(
        "A WebSocket: each message is a body of /invocations, and each document of a reply is a frame",
        {},
        {101: {}},
        failures.UPGRADED,
    ),
    ("GET", "/openapi.json"): RouteOperation("This document", {}, {200: {JSON: {"type": "object"}}}, failures.READY),
    ("GET", "/"): RouteOperation("A page that shows the endpoint's state", {}, {200: {"text/html": TEXT}}),
    ("GET", "/page/state"): RouteOperation("The data of the page", {}, {200: {JSON: {"type": "object"}}}),
    ("GET", "/page/settings"): RouteOperation("The settings with their sources", {}, {200: {JSON: {"type": "array"}}}),
    ("GET", "/page/requests"): RouteOperation("The latest requests", {}, {200: {JSON: {"type": "array"}}}),
    ("GET", "/page/{name}"): RouteOperation(
        "A script or stylesheet of the page", {}, {200: {"text/javascript": TEXT, "text/css": TEXT, "text/html": TEXT}}
    ),
}
