"""Publishes the result of an asynchronous request to SNS.

Source: developer guide "Check prediction results" of asynchronous inference. The form of ``responseBody`` is from
public code that reads it, not from the guide.
"""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local_sagemaker.local_client import local_client

log = logging.getLogger(__name__)

INCLUDED_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """The result of an asynchronous request.

    :ivar reason: the reason of a failure.
    :ivar location: the URI of the output or failure object, if there is one.
    :ivar body: the container's response, also for a failure.
    """

    reason: str | None
    location: str
    content_type: str | None
    body: bytes


def message(
    request: dict[str, str],
    inference_id: str,
    received: float,
    region: str,
    outcome: InvocationOutcome,
    with_body: bool,
) -> dict[str, Any]:
    """Returns the notification's document.

    :param request: endpointName, and contentType, accept and inputLocation if they were given.
    """
    document: dict[str, Any] = {
        "awsRegion": region,
        "eventTime": _time(datetime.now(UTC)),
        "receivedTime": _time(datetime.fromtimestamp(received, UTC)),
        "invocationStatus": "Completed" if outcome.reason is None else "Failed",
        "requestParameters": request,
        "inferenceId": inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }
    if outcome.reason is not None:
        document["failureReason"] = outcome.reason
    if outcome.location:
        parameters = {"contentType": outcome.content_type, "outputLocation": outcome.location}
        document["responseParameters"] = {name: value for name, value in parameters.items() if value}
    if with_body and len(outcome.body) <= INCLUDED_BYTES:
        document["responseBody"] = {"content": base64.b64encode(outcome.body).decode(), "encoding": "BASE64"}
    return document


class Publisher:
    """Publishes to moto's SNS, which runs beside S3."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        self._url = endpoint_url
        self._region = region

    @cached_property
    def _client(self) -> Any:
        return local_client("sns", self._url, self._region, retries={"max_attempts": 2})

    def publish(self, topic: str, document: dict[str, Any]) -> None:
        """Publishes a notification. A failure is only logged, because nobody waits for the notification."""
        try:
            self._client.publish(TopicArn=topic, Message=json.dumps(document))
        except (ClientError, BotoCoreError) as error:
            log.warning("publishing to the topic %s failed: %s", topic, error)


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
