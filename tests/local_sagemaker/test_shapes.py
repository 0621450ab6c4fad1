"""The service model as a validator: every pattern that Java reads, Python reads too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import botocore.session
import pytest
from botocore.model import ServiceModel, Shape

from local_sagemaker.control import shapes
from local_sagemaker.control.components import Components
from local_sagemaker.control.control_errors import SerializationException, ValidationException
from local_sagemaker.control.endpoint_configs import EndpointConfigs
from local_sagemaker.control.endpoints import Endpoints
from local_sagemaker.control.models import ModelDocuments
from local_sagemaker.control.registry import Registry
from local_sagemaker.control.resource_operations import Tags
from local_sagemaker.control.transform_jobs import TransformJobs


def service(name: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(name)


def patterns(shape: Shape | None, seen: set[str]) -> Iterator[str]:
    """Of a shape and of all that is in it."""
    if shape is None or shape.name in seen:
        return
    seen.add(shape.name)
    if "pattern" in shape.metadata:
        yield shape.metadata["pattern"]
    for within in (*getattr(shape, "members", {}).values(), *(getattr(shape, part, None) for part in PARTS)):
        yield from patterns(within, seen)


PARTS = ("member", "key", "value")
NOTHING: Any = MagicMock()
RESOURCES: Any = (
    ModelDocuments(NOTHING, NOTHING),
    EndpointConfigs(NOTHING),
    Endpoints(NOTHING, NOTHING),
    Components(NOTHING, NOTHING),
    TransformJobs(NOTHING, NOTHING),
    Tags(NOTHING),
)
CLAIMED = [name for each in RESOURCES for name in each.operations()]


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("sagemaker", CLAIMED),
        ("sagemaker-runtime", ["InvokeEndpointAsync"]),
    ],
)
def test_every_pattern_of_an_operation_can_be_checked(name: str, operations: list[str]) -> None:
    model, seen = service(name), set[str]()
    found = {each for op in operations for each in patterns(model.operation_model(op).input_shape, seen)}
    assert found
    for pattern in found:
        shapes.matches(pattern, "some value")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "größe 1:/=+-@", "a*"),
        (r"\A\S[\p{Print}]*\z", "a b~", "a\n"),
        (r"\p{Print}+", "policy 1", "ü"),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*", "😀 ü\n", "\x01"),
        (r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "a-b", "a-"),
    ],
)
def test_a_pattern_fits_all_of_a_value(pattern: str, fits: str, does_not: str) -> None:
    assert shapes.matches(pattern, fits)
    assert not shapes.matches(pattern, does_not)


def test_a_reply_has_only_what_its_shape_has() -> None:
    shape = service("sagemaker").operation_model("DescribeModel").output_shape
    assert shape is not None
    at = 1767225600.0
    model = {"ModelName": "m", "ModelArn": "arn", "CreationTime": at, "Ours": 1, "ExecutionRoleArn": None}
    assert shapes.render(shape, model) == {"ModelName": "m", "ModelArn": "arn", "CreationTime": at}
    with pytest.raises(KeyError, match="lacks ModelArn"):
        shapes.render(shape, {"ModelName": "m", "CreationTime": at})


def input_of(operation: str) -> Any:
    return service("sagemaker").operation_model(operation).input_shape


def test_a_member_that_is_null_counts_as_not_given() -> None:
    variant = {"VariantName": "v", "RoutingConfig": None, "CoreDumpConfig": None}
    config = {"EndpointConfigName": "c", "AsyncInferenceConfig": None, "ProductionVariants": [variant]}
    given = {"EndpointConfigName": "c", "ProductionVariants": [{"VariantName": "v"}]}
    assert shapes.parse(input_of("CreateEndpointConfig"), config) == given


@pytest.mark.parametrize("value", [pytest.param(10**400, id="401 digits"), -(2**64), float("nan"), float("inf")])
def test_a_number_that_is_too_large_or_none_is_refused(value: float) -> None:
    variant = {"VariantName": "v", "InitialVariantWeight": value}
    config = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    with pytest.raises(SerializationException, match="initialVariantWeight must be a number of at most 64 bits"):
        shapes.parse(input_of("CreateEndpointConfig"), config)
    with pytest.raises(SerializationException, match="creationTimeAfter must be a number of at most 64 bits"):
        shapes.parse(input_of("ListModels"), {"CreationTimeAfter": value})


@pytest.mark.parametrize("environment", [{"A": "\ud83d"}, {"\ud83d": "1"}])
def test_half_of_a_character_is_refused(environment: dict[str, str]) -> None:
    model = {"ModelName": "m", "PrimaryContainer": {"Image": "i", "Environment": environment}}
    with pytest.raises(SerializationException, match="lone surrogate"):
        shapes.parse(input_of("CreateModel"), model)


@pytest.mark.parametrize("token", ["x", "-1", "9" * 5000])
def test_a_page_that_no_reply_named_is_refused(token: str) -> None:
    with pytest.raises(ValidationException, match="Invalid NextToken"):
        EndpointConfigs(Registry()).list({"NextToken": token})
