"""The errors of SageMaker's runtime, as replies that boto3 turns into the right exception.

Codes and statuses are those of botocore's sagemaker-runtime model. The messages are SageMaker's own, where they are
public. After a stream has begun, an error is the last frame of `event_stream`.
"""

from __future__ import annotations

import json
from typing import ClassVar

from werkzeug.wrappers import Response

from local_sagemaker.gateway.gateway_settings import Endpoint

LONGEST_MESSAGE = 2048


class GatewayError(Exception):
    """An error reply: status, ``x-amzn-errortype`` and a JSON body.

    :cvar text: the message. Its fields are the arguments of the error.
    """

    status: int = 400
    code: str = "ValidationError"
    text: ClassVar[str] = "{}"

    def __init__(self, *values: object) -> None:
        self.message = self.text.format(*values)
        super().__init__(self.message)

    def fields(self) -> dict[str, object]:
        return {"Message": self.message}

    def reply(self) -> Response:
        response = Response(json.dumps(self.fields()), self.status, content_type="application/json")
        response.headers["x-amzn-errortype"] = self.code
        return response


class UnknownOperation(GatewayError):
    status = 404
    code = "UnknownOperationException"
    text = "{} {} is not an operation of this SageMaker runtime"


class ValidationError(GatewayError):
    """A header, member or name of the request is invalid."""


class EndpointNotFound(ValidationError):
    text = "Endpoint {} of account {} not found."


class VariantNotFound(ValidationError):
    text = "Variant {0} of endpoint {1.name} of account {1.account} not found."


class ComponentNotFound(ValidationError):
    text = "Inference Component {} of endpoint {.name} not found."


class ComponentWithoutCopies(ValidationError):
    text = (
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress "
        "(if configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
    )


class ComponentNeeded(ValidationError):
    text = (
        "Inference Component Name header is required for endpoints to which you plan to deploy inference "
        "components. Please include Inference Component Name header or consider using SageMaker models."
    )


class StickySessionNotFound(ValidationError):
    text = "Session {} of endpoint {.name} does not exist, is closed or has expired."


class TargetModelUnsupported(ValidationError):
    text = "Endpoint {.name} is not a multi-model endpoint; TargetModel can't be given."


class TargetModelNeeded(ValidationError):
    text = "Endpoint {.name} is a multi-model endpoint; TargetModel must be given."


class TargetModelMissing(ValidationError):
    text = "Failed to download the target model: {}"


class ModelNotReady(GatewayError):
    status = 429
    code = "ModelNotReadyException"
    text = "The target model {} is still being downloaded or loaded. Wait and try again."


class OversizeReplyHeaders(ValidationError):
    """Seen in public of an asynchronous endpoint: aws/deep-learning-containers, issue 4668."""

    text = (
        "Response received from the primary container has headers with length greater than {} bytes. "
        "Reduce the length of your container's response headers and update your endpoint."
    )


class NotAsynchronous(ValidationError):
    text = "Endpoint {} is not an asynchronous endpoint: its configuration has none."


class OnlyAsynchronous(ValidationError):
    text = "Endpoint {} is an asynchronous endpoint; use InvokeEndpointAsync."


class InvalidMember(ValidationError):
    text = "1 validation error detected: Value at '{}' failed to satisfy constraint: {}"


class OversizeBody(ValidationError):
    """The body is too long. SageMaker once replied 413, which its model does not have. Now it is a ValidationError."""

    text = "Request {} has oversize body. The limit is {} bytes."


class RuntimeInternalFailure(GatewayError):
    status = 500
    code = "InternalFailure"
    text = "The gateway failed. Its log has the reason."


class ServiceUnavailable(GatewayError):
    """No process accepts connections at the container's address.

    ModelNotReadyException (429) would be wrong: it is for serverless and multi-model endpoints.
    """

    status = 503
    code = "ServiceUnavailable"
    text = "The container of endpoint {.name} can't be reached: {}"


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
