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
from local_sagemaker.http_server import read_at_most

log = logging.getLogger(__name__)

OperationHandler = Callable[[JsonDocument], JsonDocument | None]
MAX_BODY = 1024 * 1024
CONTENT_TYPE = "application/x-amz-json-1.1"


class Protocol:
    """The Flask view of ``POST /``.

    :param operations: the handlers by operation name, for example ``CreateModel``.
    """

    def __init__(self, operations: Mapping[str, OperationHandler]) -> None:
        self._model: ServiceModel = botocore.session.get_session().get_service_model("sagemaker")
        self._operations = operations

    def answer(self) -> Response:
        prefix, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
        try:
            body = read_at_most(MAX_BODY)
            if body is None:
                raise SerializationException(f"The request is longer than {MAX_BODY} bytes.")
            if prefix != self._model.metadata["targetPrefix"]:
                raise UnknownOperationException(f"No operation is named {request.headers.get('X-Amz-Target', '')!r}.")
            return reply(self._call(operation, body), 200)
        except ControlError as error:
            return refusal(error)
        except Exception:
            log.exception("%s failed", operation)
            return refusal(InternalFailure("The service failed. Its log has the reason."))

    def _call(self, operation: str, body: bytes) -> JsonDocument:
        """Runs one operation.

        :raises ControlError: the call is rejected.
        """
        if operation not in self._operations:
            known = operation in self._model.operation_names
            reason = "is not supported by the local SageMaker" if known else "is not an operation of SageMaker"
            raise UnknownOperationException(f"The operation {operation} {reason}.")
        model = self._model.operation_model(operation)
        try:
            params = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise SerializationException("The request's body is not JSON.") from error
        result = self._operations[operation](shapes.parse(model.input_shape, params)) or {}
        rendered: JsonDocument = shapes.render(model.output_shape, result) if model.output_shape else {}
        return rendered


def refusal(error: ControlError) -> Response:
    response = reply({"__type": error.code, "message": error.message, "Message": error.message}, error.status)
    response.headers["x-amzn-errortype"] = error.code
    return response


def reply(document: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(document), status, content_type=CONTENT_TYPE)
