"""The AWS clients of a deployment, and calls that take "does not exist" and "already exists" as results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handler.storage.retry import SERVICES

Members = dict[str, Any]
# SageMaker has no error codes for them. Both are a ValidationException and differ only in the message.
MISSING = ("could not find", "does not exist", "not found", "no scalable target", "cannot find", "no scaling policy")
PRESENT = ("already exist", "cannot create already existing", "already being used")
MISSING_CODES = ("ResourceNotFound", "ResourceNotFoundException", "ObjectNotFoundException", "NoSuchEntity")


def _client(service: str) -> Any:
    return property(lambda aws: aws.client(service))


class Aws:
    """Clients of one session. Region, credentials and addresses are boto3's own.

    :param session: a boto3 session; by default a new one, in `region` if given.
    """

    sagemaker = _client("sagemaker")
    autoscaling = _client("application-autoscaling")
    cloudwatch = _client("cloudwatch")
    logs = _client("logs")
    iam = _client("iam")
    sts = _client("sts")

    def __init__(self, region: str | None = None, session: Any = None) -> None:
        self._region, self._session = region, session
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            import boto3

            self._session = self._session or boto3.session.Session(region_name=self._region)
            self._clients[service] = self._session.client(service, config=SERVICES.config())
        return self._clients[service]


def unless_missing(call: Callable[..., Members], **members: Any) -> Members | None:
    """Calls describe or delete. Returns the reply, or None if the resource does not exist."""
    from botocore.exceptions import ClientError

    try:
        return call(**members)
    except ClientError as error:
        if is_missing(error):
            return None
        raise


def create(call: Callable[..., Any], members: Members) -> None:
    """Creates a resource. If it exists, nothing happens: a retry after a lost reply looks like that."""
    from botocore.exceptions import ClientError

    try:
        call(**members)
    except ClientError as error:
        if not any(words in _message(error) for words in PRESENT):
            raise


def is_missing(error: Any) -> bool:
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code in MISSING_CODES or any(words in _message(error) for words in MISSING)


def _message(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Message", "")).lower()
