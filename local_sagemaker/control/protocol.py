"""The JSON protocol: ``X-Amz-Target`` names the operation, the body holds its members."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import botocore.session
from botocore.model import ServiceModel
from flask import request
from werkzeug.wrappers import Response

from local_sagemaker.control import shapes
from local_sagemaker.control.control_errors import (
    ControlError,
    InternalFailure,
    SerializationException,
    UnknownOperationException,
)
from local_sagemaker.control.registry import JsonDocument
from local_sagemaker.gateway.body_reader import read_body
from local_sagemaker.gateway.gateway_errors import OversizeBody

log = logging.getLogger(__name__)

OperationHandler = Callable[[JsonDocument], JsonDocument | None]
MAX_BODY = 1024 * 1024
READ_AT_MOST = 25 * 1024 * 1024
CONTENT_TYPE = "application/x-amz-json-1.1"


class ControlService:
    """One service of the JSON protocol.

    :param name: botocore's name of it, ``sagemaker``.
    :param operations: by the model's names, ``CreateModel``. A name that is no operation is a mistake at the start.
    :param check: raises a ControlError where a call is to fail.
    """

    def __init__(
        self,
        name: str,
        operations: Mapping[str, OperationHandler],
        check: Callable[[str], None] = lambda _operation: None,
    ) -> None:
        self._model: ServiceModel = botocore.session.get_session().get_service_model(name)
        self._operations = operations
        self._check = check
        unknown = operations.keys() - set(self._model.operation_names)
        if unknown:
            raise ValueError(f"{name} has no {', '.join(sorted(unknown))}")
        self.prefix: str = self._model.metadata["targetPrefix"]

    def call(self, operation: str, body: bytes) -> JsonDocument:
        """:raises ControlError: every refusal."""
        if operation not in self._operations:
            known = operation in self._model.operation_names
            reason = "is not one that this machine's SageMaker has" if known else "is no operation of SageMaker"
            raise UnknownOperationException(f"The operation {operation} {reason}.")
        self._check(operation)
        model = self._model.operation_model(operation)
        try:
            asked = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise SerializationException("The request's body is no JSON.") from error
        answer = self._operations[operation](shapes.parse(model.input_shape, asked)) or {}
        rendered: JsonDocument = shapes.render(model.output_shape, answer) if model.output_shape else {}
        return rendered


class Protocol:
    """The view behind ``POST /``."""

    def __init__(self, *services: ControlService) -> None:
        self._services = {service.prefix: service for service in services}

    def answer(self) -> Response:
        prefix, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
        try:
            body = read_body(READ_AT_MOST)
            if len(body) > MAX_BODY:
                raise SerializationException(f"The request is longer than {MAX_BODY} bytes.")
            service = self._services.get(prefix)
            if service is None:
                raise UnknownOperationException(f"No operation is named {request.headers.get('X-Amz-Target', '')!r}.")
            return reply(service.call(operation, body), 200)
        except ControlError as error:
            return refusal(error)
        except OversizeBody as error:
            return refusal(SerializationException(error.message))
        except Exception:
            log.exception("%s failed", operation)
            return refusal(InternalFailure("The service failed; its own log has the reason."))


def refusal(error: ControlError) -> Response:
    response = reply({"__type": error.code, "message": error.message, "Message": error.message}, error.status)
    response.headers["x-amzn-errortype"] = error.code
    return response


def reply(document: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(document), status, content_type=CONTENT_TYPE)
