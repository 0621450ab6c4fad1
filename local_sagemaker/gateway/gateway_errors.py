"""The errors of SageMaker's runtime, as replies that boto3 turns into the right exception.

Codes and statuses are those of botocore's sagemaker-runtime model. The messages are SageMaker's own, where they are
public. After a stream has begun, errors are `stream_faults`.
"""

from __future__ import annotations

import json

from werkzeug.wrappers import Response

from local_sagemaker.gateway.gateway_settings import Endpoint

LONGEST_MESSAGE = 2048


class GatewayError(Exception):
    """An error reply: status, ``x-amzn-errortype`` and a JSON body."""

    status: int
    code: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def fields(self) -> dict[str, object]:
        return {"Message": self.message}

    def reply(self) -> Response:
        response = Response(json.dumps(self.fields()), self.status, content_type="application/json")
        response.headers["x-amzn-errortype"] = self.code
        return response


class UnknownOperation(GatewayError):
    status = 404
    code = "UnknownOperationException"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path} is not an operation of this SageMaker runtime")


class ValidationError(GatewayError):
    status = 400
    code = "ValidationError"


class EndpointNotFound(ValidationError):
    def __init__(self, name: str, account: str) -> None:
        super().__init__(f"Endpoint {name} of account {account} not found.")


class VariantNotFound(ValidationError):
    def __init__(self, variant: str, endpoint: Endpoint) -> None:
        super().__init__(f"Variant {variant} of endpoint {endpoint.name} of account {endpoint.account} not found.")


class ComponentNotFound(ValidationError):
    def __init__(self, component: str, endpoint: Endpoint) -> None:
        super().__init__(f"Inference Component {component} of endpoint {endpoint.name} not found.")


class ComponentWithoutCopies(ValidationError):
    def __init__(self) -> None:
        super().__init__(
            "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress "
            "(if configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
        )


class ComponentNeeded(ValidationError):
    def __init__(self) -> None:
        super().__init__(
            "Inference Component Name header is required for endpoints to which you plan to deploy inference "
            "components. Please include Inference Component Name header or consider using SageMaker models."
        )


class StickySessionNotFound(ValidationError):
    def __init__(self, session: str, endpoint: Endpoint) -> None:
        super().__init__(f"Session {session} of endpoint {endpoint.name} does not exist, is closed or has expired.")


class TargetModelUnsupported(ValidationError):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(f"Endpoint {endpoint.name} is not a multi-model endpoint; TargetModel can't be given.")


class TargetModelNeeded(ValidationError):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(f"Endpoint {endpoint.name} is a multi-model endpoint; TargetModel must be given.")


class TargetModelMissing(ValidationError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"Failed to download the target model: {reason}")


class ModelNotReady(GatewayError):
    status = 429
    code = "ModelNotReadyException"

    def __init__(self, target: str) -> None:
        super().__init__(f"The target model {target} is still being downloaded or loaded. Wait and try again.")


class NotAsynchronous(ValidationError):
    def __init__(self, endpoint: str) -> None:
        super().__init__(f"Endpoint {endpoint} is not an asynchronous endpoint: its configuration has none.")


class OnlyAsynchronous(ValidationError):
    def __init__(self, endpoint: str) -> None:
        super().__init__(f"Endpoint {endpoint} is an asynchronous endpoint; use InvokeEndpointAsync.")


class Throttled(GatewayError):
    status = 400
    code = "ThrottlingException"

    def __init__(self) -> None:
        super().__init__("Rate exceeded")


class InvalidMember(ValidationError):
    def __init__(self, member: str, constraint: str) -> None:
        super().__init__(f"1 validation error detected: Value at '{member}' failed to satisfy constraint: {constraint}")


class SessionNeedsInvokeEndpoint(ValidationError):
    def __init__(self) -> None:
        super().__init__("A stateful session can't be created by InvokeEndpointWithResponseStream; use InvokeEndpoint.")


class OversizeBody(ValidationError):
    """The body is too long. SageMaker once replied 413, which its model does not have. Now it is a ValidationError."""

    def __init__(self, request_id: str, limit: int) -> None:
        super().__init__(f"Request {request_id} has oversize body. The limit is {limit} bytes.")


class RuntimeInternalFailure(GatewayError):
    status = 500
    code = "InternalFailure"

    def __init__(self) -> None:
        super().__init__("The gateway failed. Its log has the reason.")


class ServiceUnavailable(GatewayError):
    """No process accepts connections at the container's address.

    ModelNotReadyException (429) would be wrong: it is for serverless and multi-model endpoints.
    """

    status = 503
    code = "ServiceUnavailable"

    def __init__(self, endpoint: Endpoint, reason: str) -> None:
        super().__init__(f"The container of endpoint {endpoint.name} can't be reached: {reason}")


class ModelError(GatewayError):
    """The container replied with a 4xx or 5xx, or did not reply (SageMaker then reports status 0)."""

    status = 424
    code = "ModelError"

    def __init__(self, endpoint: Endpoint, original_status: int, original: str) -> None:
        self.endpoint = endpoint
        self.original_status = original_status
        self.original = original[:LONGEST_MESSAGE]
        side = "client" if 400 <= original_status < 500 else "server"
        before = f'Received {side} error ({original_status}) from primary with message "'
        after = f'". See {endpoint.console_url} in account {endpoint.account} for more information.'
        super().__init__(before + self.original[: LONGEST_MESSAGE - len(before) - len(after)] + after)

    def fields(self) -> dict[str, object]:
        return {
            "Message": self.message,
            "OriginalStatusCode": self.original_status,
            "OriginalMessage": self.original,
            "LogStreamArn": self.endpoint.log_stream_arn,
        }


class InvocationTimedOut(ModelError):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(
            endpoint,
            0,
            "Your invocation timed out while waiting for a response from container primary. Review the "
            "latency metrics for each container in Amazon CloudWatch, resolve the issue, and try again.",
        )


class InvalidContainerReply(ModelError):
    def __init__(self, endpoint: Endpoint, reason: str) -> None:
        super().__init__(endpoint, 0, f"Container primary did not complete its response: {reason}")
