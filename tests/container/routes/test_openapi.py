"""The OpenAPI document says what the code does: its routes, the tables that parse, the tree of errors, the replies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from container.application import create_app
from container.openapi.bodies import TABLES
from container.openapi.document import ARGUMENT, AUTOMATIC_METHODS, document
from container.openapi.operations import OPERATIONS
from container.routes.execution_parameters import execution_parameters
from container.service import Service
from handler import errors
from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_errors import CustomCodeRefused
from handler.engine.adapters.adapter_errors import AdaptersFull
from handler.engine.api_routes import Route
from handler.errors import ClientError, EndpointError, ServerError
from handler.schemas.openai.model_names import model_list
from handler.schemas.request_fields import Body, unsupported
from handler.schemas.tgi_lmi.inputs_fields import Parameters
from tests.container.http_client import http_client

# Raised before anything is served, or never to a client.
# The page, which ForeignHost is about, is not in the document.
NOT_ANSWERED = (
    ClientError,
    ServerError,
    errors.StartFailed,
    errors.RouteNotFound,
    errors.MethodNotAllowed,
    errors.ForeignHost,
)


def service(**settings: Any) -> Service:
    return Service.of(EndpointConfig(model="m", **settings))


def of(serviced: Service) -> dict[str, Any]:
    return document(create_app(serviced).url_map.iter_rules())


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return of(service(page=True, multi_model=True, enable_sessions=True))


def test_it_is_openapi(whole: dict[str, Any]) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    assert list(OpenAPIV31SpecValidator(whole).iter_errors()) == []


def test_it_has_every_route_and_no_other(whole: dict[str, Any]) -> None:
    rules = create_app(service(page=True, multi_model=True)).url_map.iter_rules()
    served = {
        (method, ARGUMENT.sub(r"{\1}", rule.rule))
        for rule in rules
        if not rule.websocket
        for method in (rule.methods or set()) - AUTOMATIC_METHODS
    }
    shown = {(method.upper(), path) for path, methods in whole["paths"].items() for method in methods}
    assert shown == served == set(OPERATIONS)


def test_routes_that_are_off_are_not_in_it() -> None:
    paths = of(service())["paths"]
    assert "/invocations" in paths
    assert not {"/", "/models", "/page/state"} & set(paths)


@pytest.mark.parametrize(
    ("component", "table"), [("ChatRequest", TABLES[Route.CHAT]), ("CompletionRequest", TABLES[Route.COMPLETIONS])]
)
def test_types_and_bounds_are_those_that_parse(
    whole: dict[str, Any], component: str, table: type[msgspec.Struct]
) -> None:
    _, found = msgspec.json.schema_components((table,), ref_template="#/components/schemas/{name}")
    shown = whole["components"]["schemas"][component]["properties"]
    expected = {name: of for name, of in found[table.__name__]["properties"].items() if name != "messages"}
    assert {name: shown[name] for name in expected} == expected
    assert shown["top_p"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert set(unsupported(Body.CHAT, vllm=True)) <= set(shown)


def test_the_parameters_of_inputs(whole: dict[str, Any]) -> None:
    shown = whole["components"]["schemas"]["Parameters"]["properties"]
    assert set(shown) == {*Parameters.__struct_fields__, *unsupported(Body.PARAMETERS, vllm=False)}
    assert False in shown["watermark"]["enum"]
    assert shown["best_of"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 8}


def test_every_error_that_a_client_can_get_is_in_it(whole: dict[str, Any]) -> None:
    told: dict[str, str] = {}
    for methods in whole["paths"].values():
        for method, operation in methods.items():
            assert method == "get" or errors.ForeignOrigin.code in operation["responses"]["403"]["description"]
            for status, response in operation["responses"].items():
                told[status] = told.get(status, "") + " " + response["description"]
    for kind in _leaves(EndpointError):
        if kind in NOT_ANSWERED or not kind.__module__.startswith(
            ("handler.errors", "handler.engine.adapters", "handler.sessions", "handler.startup.multi_model")
        ):
            continue
        if issubclass(kind, errors.SettingError):
            continue
        assert kind.code in told[str(kind.status)], kind


def _leaves(kind: type[EndpointError]) -> set[type[EndpointError]]:
    return {kind} | {found for child in kind.__subclasses__() for found in _leaves(child)}


def test_the_models_own_code_may_answer_anything() -> None:
    rules = create_app(service()).url_map.iter_rules()
    operation = document(rules, own_code=True)["paths"]["/invocations"]["post"]
    assert "*/*" in operation["requestBody"]["content"]
    assert "default" in operation["responses"]
    assert CustomCodeRefused.code in operation["responses"]["500"]["description"]


def test_replies_are_as_it_says(whole: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator

    def check(name: str, reply: object) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": whole["components"]}
        Draft202012Validator(schema).validate(reply)

    check("Error", AdaptersFull(3).document())
    check("ModelList", {"object": "list", "data": model_list(("a",), 1024, ("b",))})
    check("ExecutionParameters", execution_parameters(EndpointConfig(model="m"), 4, 1024))
    app = http_client(service())
    check("Progress", app.get("/ping").json)


def test_it_is_asked_for_when_the_endpoint_is_ready() -> None:
    reply = http_client(service()).get("/openapi.json")
    assert reply.status_code == 503
    assert reply.get_json()["error"]["code"] == "starting"
