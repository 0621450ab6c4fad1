"""The JSON protocol: ``X-Amz-Target`` names the operation, and the body has its parameters."""

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

    :param name: botocore's name of the service, for example ``sagemaker``.
    :param operations: the handlers by operation name, for example ``CreateModel``. An unknown name is an error.
    :param check: raises a ControlError if a call is to fail.
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
        """Runs one operation.

        :raises ControlError: the call is rejected.
        """
        if operation not in self._operations:
            known = operation in self._model.operation_names
            reason = "is not supported by the local SageMaker" if known else "is not an operation of SageMaker"
            raise UnknownOperationException(f"The operation {operation} {reason}.")
        self._check(operation)
        model = self._model.operation_model(operation)
        try:
            params = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise SerializationException("The request's body is not JSON.") from error
        result = self._operations[operation](shapes.parse(model.input_shape, params)) or {}
        rendered: JsonDocument = shapes.render(model.output_shape, result) if model.output_shape else {}
        return rendered


class Protocol:
    """The Flask view of ``POST /``."""

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
            return refusal(InternalFailure("The service failed. Its log has the reason."))


def refusal(error: ControlError) -> Response:
    response = reply({"__type": error.code, "message": error.message, "Message": error.message}, error.status)
    response.headers["x-amzn-errortype"] = error.code
    return response


def reply(document: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(document), status, content_type=CONTENT_TYPE)
