"""One request of InvokeEndpointAsync: its parameters, and the record that is stored until it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.model import StructureShape
from botocore.session import get_session
from flask import request

from local_sagemaker.control import shapes
from local_sagemaker.control.control_errors import ControlError
from local_sagemaker.gateway import gateway_errors as errors


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted request. It is stored as JSON until it is done, so that a restart does not lose it.

    :ivar topics: the SNS topics of the configuration's OutputConfig.
    """

    id: str
    endpoint: str
    input: str
    inline: str
    headers: tuple[tuple[str, str], ...]
    output: str
    failure: str
    expires: float
    timeout: float
    inference_id: str = ""
    received: float = 0.0
    topics: dict[str, Any] = field(default_factory=dict)


def header_params(name: str) -> dict[str, Any]:
    """Returns the parameters that are sent as headers, validated by the service model."""
    params: dict[str, Any] = {"EndpointName": name}
    for member, shape in shape_of_request().members.items():
        value = request.headers.get(shape.serialization.get("name", ""))
        if shape.serialization.get("location") != "header" or value is None:
            continue
        try:
            params[member] = int(value) if shape.type_name == "integer" else value
        except ValueError as error:
            raise errors.InvalidMember(member, "Member must be an integer") from error
    try:
        return shapes.parse(shape_of_request(), params)
    except ControlError as error:
        raise errors.ValidationError(error.message) from error


@cache
def shape_of_request() -> StructureShape:
    shape = get_session().get_service_model("sagemaker-runtime").operation_model("InvokeEndpointAsync").input_shape
    assert shape is not None
    return shape


def join(path: str | None, folder: str, name: str) -> str:
    """Returns the URI of an object below a configured path, or nothing if there is none."""
    if not path:
        return ""
    return "/".join((path.rstrip("/"), *(part.strip("/") for part in (folder, name) if part)))
