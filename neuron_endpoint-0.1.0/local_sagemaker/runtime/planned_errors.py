"""Injected errors: makes the next calls of an operation fail with one of its documented errors."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import botocore.session
from botocore.model import ServiceModel, Shape
from flask import Flask, g, request

from local_sagemaker.control.control_errors import ControlError
from local_sagemaker.gateway import event_stream
from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway.body_reader import read_body
from local_sagemaker.gateway.gateway_settings import Endpoint

RUNTIME = "sagemaker-runtime"
INVOCATIONS = {
    "invoke": "InvokeEndpoint",
    "invoke_with_response_stream": "InvokeEndpointWithResponseStream",
    "asynchronous": "InvokeEndpointAsync",
}
# The errors that every operation has. Source: API reference of SageMaker, "Common Errors".
COMMON: Mapping[str, int] = {
    "AccessDeniedException": 400,
    "InternalFailure": 500,
    "RequestExpired": 400,
    "ServiceUnavailable": 503,
    "ThrottlingException": 400,
}
# The errors that end a stream which has begun, and their ErrorCode.
STREAM_FAULTS: Mapping[str, str | None] = {"ModelStreamError": "StreamBroken", "InternalStreamFailure": None}
# botocore's model of Application Auto Scaling has no statuses. By its API reference, all others are 400.
FAULTS = {"InternalServiceException": 500}
MESSAGE = "Injected by `neuron-endpoint local chaos error`."


@dataclass(slots=True)
class Planned:
    """A planned error.

    :ivar operations: the next call of any of these fails.
    :ivar endpoint: only invocations of this endpoint fail. None means any.
    """

    code: str
    operations: frozenset[str]
    endpoint: str | None
    left: int


class PlannedErrors:
    """The planned errors of the service.

    :param operations: the supported operations, by botocore's name of the service.
    """

    def __init__(self, operations: Mapping[str, Iterable[str]]) -> None:
        documented = {**operations, RUNTIME: INVOCATIONS.values()}
        self._documented = {
            operation: {**COMMON, **documented_errors(service, operation)}
            for service, names in documented.items()
            for operation in names
        }
        self._planned: list[Planned] = []
        self._lock = threading.Lock()

    def plan(self, code: str, operation: str | None, endpoint: str | None, times: int) -> list[str]:
        """Makes the next ``times`` calls fail, and returns the affected operations. 0 cancels.

        Without an operation, these are the invocations that have this error, or else all operations that have it.

        :raises ValueError: no such operation has this error.
        """
        fitting = [name for name, codes in self._documented.items() if code in codes and operation in (None, name)]
        invocations = [name for name in fitting if name in INVOCATIONS.values()]
        selected = invocations or fitting
        if operation is not None and operation not in self._documented:
            raise ValueError(f"The operation {operation} is not supported.")
        if not selected:
            known = (
                self._documented[operation] if operation else {c for each in self._documented.values() for c in each}
            )
            raise ValueError(
                f"{operation or 'The service'} does not document {code}; its errors: {', '.join(sorted(known))}."
            )
        with self._lock:
            same = (code, frozenset(selected), endpoint)
            self._planned = [each for each in self._planned if (each.code, each.operations, each.endpoint) != same]
            if times:
                self._planned.append(Planned(*same, times))
        return selected

    def take(self, operation: str, endpoint: str | None = None) -> tuple[str, int] | None:
        """Returns the error that this call must fail with, and its status."""
        with self._lock:
            for planned in self._planned:
                if operation in planned.operations and planned.endpoint in (None, endpoint):
                    planned.left -= 1
                    self._planned = [each for each in self._planned if each.left]
                    return planned.code, self._documented[operation][planned.code]
        return None

    def check(self, operation: str) -> None:
        """Called for each call of the control plane.

        :raises ControlError: the call must fail.
        """
        if taken := self.take(operation):
            error = ControlError(MESSAGE)
            error.code, error.status = taken
            raise error

    def mount(self, app: Flask, region: str, account: str, body_limit: int) -> None:
        """Adds the check in front of every invocation."""

        @app.before_request
        def check_invocation() -> None:
            operation = INVOCATIONS.get(request.endpoint or "")
            name = (request.view_args or {}).get("name", "")
            taken = self.take(operation, name) if operation else None
            if taken is None:
                return
            code, status = taken
            if code in STREAM_FAULTS:
                g.stream_fault = event_stream.exception(code, MESSAGE, STREAM_FAULTS[code])
                return
            read_body(body_limit)
            if code == "ModelError":
                raise errors.ModelError(Endpoint(name, "", region, account), 500, MESSAGE)
            error = errors.GatewayError(MESSAGE)
            error.code, error.status = code, status
            raise error


def documented_errors(service: str, operation: str) -> dict[str, int]:
    """Returns the statuses of an operation's errors by code. Errors of a stream have the 200 that was sent before."""
    shapes = _model(service).operation_model(operation).error_shapes
    return {shape.name: 200 if shape.name in STREAM_FAULTS else _status(shape) for shape in shapes}


def _status(shape: Shape) -> int:
    own: int | None = shape.metadata.get("error", {}).get("httpStatusCode")
    return own or FAULTS.get(shape.name, 400)


@cache
def _model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)
