"""botocore's service models, and what this project takes from them: enumerations, bounds, names and patterns.

The models are read here, at test time. A new botocore that adds or removes something fails a test that says what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.model import Shape, StructureShape
from werkzeug.datastructures import Headers

from container.http import body_budget
from container.requests import custom_attributes, deadline
from handler.config.endpoint_config import BATCH_STRATEGIES
from handler.config.fields import fields
from handler.neuron.hardware.instance_catalogue import INSTANCES, TRAINING, TRANSFORM
from handler.sessions.session_store import Session
from local_sagemaker.control import shapes, transform_jobs
from local_sagemaker.gateway import asynchronous
from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.container_connection import RuntimeLimits
from local_sagemaker.gateway.gateway_errors import Endpoint
from local_sagemaker.hosting import transform_job
from model_packaging.commands import deploy
from model_packaging.compilation import compile_job
from model_packaging.deployment.definition import limits, request, routing

NEURON = re.compile(r"ml\.((?:inf2|trn[123]|trn[12]n|trn2u)\.\w+)")
# Headers that reach no container: those of other containers and of Clarify's explanations, which nothing here has, and
# those that SageMaker's queue reads.
LEFT_OUT = {
    headers.AMZN + name
    for name in (
        *("Target-Container-Hostname", "Enable-Explanations"),
        *("InputLocation", "S3OutputPathExtension", "Filename", "RequestTTLSeconds", "InvocationTimeoutSeconds"),
    )
}


@cache
def model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


def shape(name: str, service: str = "sagemaker") -> Shape:
    found: Shape = model(service).shape_for(name)
    return found


def member(structure: str, name: str) -> Shape:
    found = shape(structure)
    assert isinstance(found, StructureShape)
    return found.members[name]


def given(operation: str, name: str) -> Shape:
    found: Shape = model("sagemaker-runtime").operation_model(operation).input_shape.members[name]
    return found


def bounds(found: Shape) -> tuple[int | None, int | None]:
    return found.metadata.get("min"), found.metadata.get("max")


def default(found: Shape) -> int | None:
    """The default that a member's documentation names."""
    match = re.search(r"default value is (\d+)", found.documentation)
    return int(match[1]) if match else None


def enum(name: str) -> set[str]:
    return set(shape(name).metadata["enum"])


def neuron(name: str) -> set[str]:
    """The types with Neuron cores of a generation that vLLM runs on, without `ml.`."""
    return {match[1] for value in enum(name) if (match := NEURON.fullmatch(value))}


def sent(operation: str, direction: str) -> dict[str, int]:
    """The headers of an operation and the longest value of each."""
    operation_model = model("sagemaker-runtime").operation_model(operation)
    members = getattr(operation_model, f"{direction}_shape").members
    return {
        each.serialization["name"]: each.metadata.get("max", 0)
        for each in members.values()
        if each.serialization.get("location") == "header"
    }


def passed_on(operation: str) -> set[str]:
    """What the local gateway passes to a container, of all headers of an operation."""
    values = {
        name: "60" if "Seconds" in name else "s3://b/k" if "Input" in name else "7" for name in sent(operation, "input")
    }
    return {name for name, _ in headers.for_container(operation, "chat", Headers(values))}


def at_container(operation: str) -> set[str]:
    renamed = {"X-Amzn-SageMaker-Accept": "Accept", "X-Amzn-SageMaker-Content-Type": "Content-Type"}
    return {renamed.get(name, name) for name in sent(operation, "input")} - LEFT_OUT


def uri(operation: str) -> str:
    found: str = model("sagemaker-runtime").operation_model(operation).http["requestUri"]
    return found


def error(code: str) -> tuple[int, set[str]]:
    found = shape(code, "sagemaker-runtime")
    assert isinstance(found, StructureShape)
    return found.metadata["error"]["httpStatusCode"], set(found.members)


def replied(made: errors.GatewayError) -> tuple[int, set[str]]:
    return made.status, set(made.fields())


HERE = Endpoint("chat")
NEW = (
    model("sagemaker-runtime")
    .operation_model("InvokeEndpoint")
    .output_shape.members["NewSessionId"]
    .metadata["pattern"]
)
# What the source says, and what we have, computed when the test runs.
FACTS: Mapping[str, Callable[[], tuple[object, object]]] = {
    "endpoint types": lambda: (
        neuron("ProductionVariantInstanceType"),
        {each.name for each in INSTANCES if each.hosting},
    ),
    "transform types": lambda: (neuron("TransformInstanceType"), set(TRANSFORM)),
    "training types": lambda: (neuron("TrainingInstanceType"), set(TRAINING)),
    "batch strategies": lambda: (
        {name.lower() for name in enum("BatchStrategy")},
        {name for name in BATCH_STRATEGIES if "_" not in name},
    ),
    "batch strategies locally": lambda: (enum("BatchStrategy"), set(transform_job.STRATEGIES.values())),
    "split types": lambda: (enum("SplitType"), {"None", "Line", "RecordIO", "TFRecord"}),
    "assembly types": lambda: (enum("AssemblyType"), {"None", "Line"}),
    "concurrent transforms": lambda: (
        bounds(shape("MaxConcurrentTransforms"))[0],
        fields()["max_concurrent_transforms"].bounds()[0],  # type: ignore[index]
    ),
    "payload": lambda: (bounds(shape("MaxPayloadInMB"))[0], fields()["max_payload_mb"].bounds()[0]),  # type: ignore[index]
    "time of a transform's request": lambda: (bounds(shape("InvocationsTimeoutInSeconds")), (1, deadline.MAX_TIMEOUT)),
    "time of a transform's request by default": lambda: (
        default(member("ModelClientConfig", "InvocationsTimeoutInSeconds")),
        deadline.TRANSFORM_REPLY_SECONDS + 10,
    ),
    "time of a transform's request locally": lambda: (
        default(member("ModelClientConfig", "InvocationsTimeoutInSeconds")),
        transform_job.TIMEOUT_SECONDS,
    ),
    "retries of a transform": lambda: (bounds(shape("InvocationsMaxRetries")), (0, transform_job.MAX_RETRIES)),
    "variables of a transform": lambda: (bounds(shape("TransformEnvironmentMap")), (0, 16)),
    "asynchronous slots": lambda: (bounds(shape("MaxConcurrentInvocationsPerInstance")), (1, request.MOST_CONCURRENT)),
    # SageMaker chooses, and no source says how. The local one has one number.
    "asynchronous slots without a number": lambda: (
        None,
        None if asynchronous.CONCURRENT_PER_INSTANCE == 4 else asynchronous.CONCURRENT_PER_INSTANCE,
    ),
    "asynchronous time": lambda: (
        bounds(given("InvokeEndpointAsync", "InvocationTimeoutSeconds")),
        (1, deadline.MAX_TIMEOUT),
    ),
    "asynchronous time by default": lambda: (asynchronous.INVOCATION_SECONDS, deadline.ASYNC_REPLY_SECONDS + 10),
    "time in the queue": lambda: (
        bounds(given("InvokeEndpointAsync", "RequestTTLSeconds")),
        (60, asynchronous.TTL_SECONDS),
    ),
    "inline body": lambda: (bounds(given("InvokeEndpointAsync", "Body"))[1], asynchronous.INLINE_BYTES),
    "headers of InvokeEndpoint": lambda: (at_container("InvokeEndpoint"), passed_on("InvokeEndpoint")),
    "headers of a stream": lambda: (
        at_container("InvokeEndpointWithResponseStream"),
        passed_on("InvokeEndpointWithResponseStream"),
    ),
    "headers of an asynchronous request": lambda: (
        at_container("InvokeEndpointAsync"),
        passed_on("InvokeEndpointAsync"),
    ),
    "headers of a reply": lambda: (
        set(sent("InvokeEndpoint", "output")),
        {*headers.REGULAR_REPLY, headers.INVOKED_VARIANT},
    ),
    "headers of a streamed reply": lambda: (
        set(sent("InvokeEndpointWithResponseStream", "output")),
        {*headers.STREAMED_REPLY, headers.INVOKED_VARIANT, headers.STREAM_CONTENT_TYPE},
    ),
    "header of the time": lambda: (
        given("InvokeEndpointAsync", "InvocationTimeoutSeconds").serialization["name"],
        deadline.TIMEOUT_HEADER,
    ),
    "header of the attributes": lambda: (
        given("InvokeEndpoint", "CustomAttributes").serialization["name"],
        custom_attributes.HEADER,
    ),
    "a new session's id": lambda: (True, shapes.matches(NEW, Session("a" * 36, 0.0).header())),
    "path": lambda: (uri("InvokeEndpoint"), "/endpoints/{EndpointName}/invocations"),
    "path of a stream": lambda: (
        uri("InvokeEndpointWithResponseStream"),
        "/endpoints/{EndpointName}/invocations-response-stream",
    ),
    "path of an asynchronous request": lambda: (
        (
            uri("InvokeEndpointAsync"),
            model("sagemaker-runtime").operation_model("InvokeEndpointAsync").http["responseCode"],
        ),
        ("/endpoints/{EndpointName}/async-invocations", 202),
    ),
    "ModelError": lambda: (error("ModelError"), replied(errors.ModelError(HERE, 500, ""))),
    "ValidationError": lambda: (error("ValidationError"), replied(errors.ValidationError(""))),
    "ModelNotReadyException": lambda: (error("ModelNotReadyException"), replied(errors.ModelNotReady(""))),
    "InternalFailure": lambda: (error("InternalFailure"), replied(errors.RuntimeInternalFailure(""))),
    "ServiceUnavailable": lambda: (error("ServiceUnavailable"), replied(errors.ServiceUnavailable(HERE, ""))),
    "events of a stream": lambda: (
        set(shape("ResponseStream", "sagemaker-runtime").members),  # type: ignore[attr-defined]
        {"PayloadPart", "ModelStreamError", "InternalStreamFailure"},
    ),
    "longest message": lambda: (bounds(shape("Message", "sagemaker-runtime"))[1], errors.LONGEST_MESSAGE),
    "body of InvokeEndpoint": lambda: (
        True,
        bounds(given("InvokeEndpoint", "Body"))[1] == 6_291_456 <= RuntimeLimits().body_bytes,
    ),  # 6,291,456 by the model; what the container and the local SageMaker take is more
    "start": lambda: (
        bounds(member("ProductionVariant", "ContainerStartupHealthCheckTimeoutInSeconds")),
        (limits.LEAST, limits.MOST),
    ),
    "download": lambda: (
        bounds(member("ProductionVariant", "ModelDataDownloadTimeoutInSeconds")),
        (limits.LEAST, limits.MOST),
    ),
    "volume": lambda: (bounds(member("ProductionVariant", "VolumeSizeInGB"))[1], limits.LARGEST_VOLUME),
    "variables": lambda: (bounds(shape("EnvironmentMap"))[1], request.MOST_VARIABLES),
    "name of a variable": lambda: (shape("EnvironmentKey").metadata["pattern"], request.VARIABLE.pattern),
    "value of a variable": lambda: (bounds(shape("EnvironmentValue"))[1], request.LONGEST_VALUE),
    "variables of a training job": lambda: (
        (bounds(shape("TrainingEnvironmentMap"))[1], bounds(shape("TrainingEnvironmentValue"))[1]),
        (compile_job.MOST_VARIABLES, compile_job.LONGEST_VALUE),
    ),
    "further model data": lambda: (bounds(shape("AdditionalModelDataSources")), (0, 5)),
    "routing": lambda: (enum("RoutingStrategy"), {*routing.STRATEGIES.values(), "KV_AWARE"}),
    "prefix": lambda: (bounds(shape("PrefixAwareRoutingPrefixLength")), (routing.SHORTEST, routing.LONGEST)),
    "host image": lambda: (True, deploy.AMI in enum("ProductionVariantInferenceAmiVersion")),
    "modes of a container": lambda: (enum("ContainerMode"), {"SingleModel", "MultiModel"}),
    "kinds of model data": lambda: (enum("S3ModelDataType"), {"S3Prefix", "S3Object"}),
    "compression of model data": lambda: (enum("ModelCompressionType"), {"None", "Gzip"}),
    "devices of a component": lambda: (bounds(shape("NumberOfAcceleratorDevices"))[0], 1),
    "no bidirectional call": lambda: (
        {"InvokeEndpoint", "InvokeEndpointAsync", "InvokeEndpointWithResponseStream"},
        set(model("sagemaker-runtime").operation_names),
    ),
    "megabytes of a transform": lambda: (transform_jobs.MOST_MEGABYTES, body_budget.TRANSFORM_MB),
}


@pytest.mark.parametrize("name", FACTS)
def test_fact(name: str) -> None:
    said, had = FACTS[name]()
    assert had == said
