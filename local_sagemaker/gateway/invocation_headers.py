"""The headers that the gateway forwards, in each direction. All others are removed, as SageMaker does.

Names and limits of a request's headers are those of botocore's model of sagemaker-runtime. The two headers of adapters
are from aws/model-hosting-container-standards (sagemaker/lora/constants.py); the model does not have them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from botocore.model import StructureShape
from botocore.session import get_session
from werkzeug.datastructures import Headers

from local_sagemaker.control import shapes
from local_sagemaker.control.control_errors import ControlError
from local_sagemaker.gateway.gateway_errors import ValidationError

AMZN = "X-Amzn-SageMaker-"
INVOKED_VARIANT = "x-Amzn-Invoked-Production-Variant"
STREAM_CONTENT_TYPE = AMZN + "Content-Type"
TARGET_VARIANT = AMZN + "Target-Variant"
SESSION_ID = AMZN + "Session-Id"
NEW_SESSION = AMZN + "New-Session-Id"
CLOSED_SESSION = AMZN + "Closed-Session-Id"
COMPONENT = AMZN + "Inference-Component"
ADAPTER = AMZN + "Adapter-Identifier"
ADAPTER_ALIAS = AMZN + "Adapter-Alias"
TARGET_MODEL = AMZN + "Target-Model"
PREFIX_AWARE_ID = AMZN + "Prefix-Aware-Id"
# Headers of endpoints that do not exist here -> what such an endpoint has.
UNSUPPORTED = {
    AMZN + "Target-Container-Hostname": "several containers",
    AMZN + "Enable-Explanations": "an explainer",
}

INVOKE, STREAM, ASYNC = "InvokeEndpoint", "InvokeEndpointWithResponseStream", "InvokeEndpointAsync"
# The members that reach the container. Two of them always have the same name there.
PASSED = (
    *("ContentType", "Accept", "CustomAttributes", "TargetVariant", "InferenceId", "InferenceComponentName"),
    *("SessionId", "PrefixAwareId", "TargetModel"),
)
AT_CONTAINER = {"ContentType": "Content-Type", "Accept": "Accept"}

STREAMED_REPLY = (AMZN + "Custom-Attributes",)
REGULAR_REPLY = (*STREAMED_REPLY, NEW_SESSION, CLOSED_SESSION, "Content-Type")


def params_of(operation: str, endpoint: str, client: Headers) -> dict[str, Any]:
    """Returns an operation's parameters that are sent as headers.

    :raises ValidationError: the service model does not allow one.
    """
    params: dict[str, Any] = {"EndpointName": endpoint, "Body": b""}
    for member, shape in request_shape(operation).members.items():
        value = client.get(shape.serialization.get("name", ""))
        if shape.serialization.get("location") != "header" or value is None:
            continue
        try:
            params[member] = int(value) if shape.type_name == "integer" else value
        except ValueError as error:
            problem = f"Value at '{member}' failed to satisfy constraint: Member must be an integer"
            raise ValidationError(f"1 validation error detected: {problem}") from error
    try:
        return shapes.parse(request_shape(operation), params)
    except ControlError as error:
        raise ValidationError(error.message) from error


def for_container(operation: str, endpoint: str, client: Headers) -> list[tuple[str, str]]:
    """Returns the headers for the container.

    :raises ValidationError: the service model does not allow one.
    """
    params, members = params_of(operation, endpoint, client), request_shape(operation).members
    passed = [
        (AT_CONTAINER.get(name, members[name].serialization["name"]), params[name]) for name in PASSED if name in params
    ]
    return [*passed, *((name, client[name]) for name in (ADAPTER, ADAPTER_ALIAS) if name in client)]


@cache
def request_shape(operation: str) -> StructureShape:
    shape = get_session().get_service_model("sagemaker-runtime").operation_model(operation).input_shape
    assert shape is not None
    return shape
