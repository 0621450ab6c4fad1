"""The errors of SageMaker's runtime, as replies that boto3 turns into the right exception.

Codes and statuses are those of botocore's sagemaker-runtime model. The messages are SageMaker's own, where they are
public. After a stream has begun, an error is the last frame of `event_stream`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from werkzeug.wrappers import Response

LONGEST_MESSAGE = 2048
# Messages that two places raise. `ValidationError` has them.
ENDPOINT_NOT_FOUND = "Endpoint {} of account {} not found."
VARIANT_NOT_FOUND = "Variant {0} of endpoint {1.name} of account {1.account} not found."
# SageMaker once replied 413, which its model does not have.
OVERSIZE_BODY = "Request {} has oversize body. The limit is {} bytes."
FAILED = "The gateway failed. Its log has the reason."
TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint that a gateway serves, with the names that SageMaker's messages use."""

    name: str
    variant: str = "AllTraffic"
    region: str = "us-east-1"
    account: str = "123456789012"

    @property
    def log_group(self) -> str:
        return f"/aws/sagemaker/Endpoints/{self.name}"

    @property
    def log_stream_arn(self) -> str:
        return f"arn:aws:logs:{self.region}:{self.account}:log-group:{self.log_group}"

    @property
    def console_url(self) -> str:
        console = f"https://{self.region}.console.aws.amazon.com/cloudwatch/home?region={self.region}"
        return f"{console}#logEventViewer:group={self.log_group}"


class GatewayError(Exception):
    """An error reply: status, ``x-amzn-errortype`` and a JSON body."""

    status: int = 400
    code: str

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)

    def fields(self) -> dict[str, object]:
        return {"Message": self.message}

    def reply(self) -> Response:
        response = Response(json.dumps(self.fields()), self.status, content_type="application/json")
        response.headers["x-amzn-errortype"] = self.code
        return response


class UnknownOperation(GatewayError):
    status = 404
    code = "UnknownOperationException"


class ValidationError(GatewayError):
    """A header, member or name of the request is invalid."""

    code = "ValidationError"


class ForeignClient(GatewayError):
    """The request is a web page's, or for a foreign name. SageMaker itself refuses what is not signed."""

    status = 403
    code = "AccessDeniedException"


class ModelNotReady(GatewayError):
    status = 429
    code = "ModelNotReadyException"


class RuntimeInternalFailure(GatewayError):
    status = 500
    code = "InternalFailure"


class ServiceUnavailable(GatewayError):
    """No process accepts connections at the container's address.

    ModelNotReadyException (429) would be wrong: it is for serverless and multi-model endpoints.
    """

    status = 503
    code = "ServiceUnavailable"

    def __init__(self, endpoint: Endpoint, reason: object) -> None:
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
