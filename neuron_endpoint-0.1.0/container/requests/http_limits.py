"""Limits of a request in time and size, from the settings and from the engine's capacity. Pure.

SageMaker allows 60 s for a reply ("Custom inference code with hosting services"), 15 minutes for an asynchronous
request that names no time ("InvokeEndpointAsync"), and up to an hour for a request of a batch transform
("CreateTransformJob", ModelClientConfig). 8 minutes for a stream have no source of SageMaker's own. The defaults are a
little lower, so that the client reads an error and not a time-out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from handler.config.endpoint_config import MIB, EndpointConfig
from handler.errors import DeadlineExceeded, InvalidField
from handler.startup.admission import max_in_flight

REPLY_SECONDS = 58.0
ASYNC_REPLY_SECONDS = 890.0
TRANSFORM_REPLY_SECONDS = 3590.0
# InvokeEndpointAsync's header. No source says that SageMaker passes it on. Clients of the container may send it.
TIMEOUT_HEADER = "X-Amzn-SageMaker-InvocationTimeoutSeconds"
MAX_TIMEOUT = 3600.0
# Bytes of a reply's headers on an asynchronous endpoint (aws/deep-learning-containers, issue 4668), less the server's.
MOST_REPLY_HEADERS = 4096 - 256
# Batch transform's limit for the largest body times the number of concurrent bodies.
TRANSFORM_MB = 100
# Bytes that one token may take as JSON-escaped text: "\\u4f60\\u597d" is one token to many models.
MAX_TOKEN_BYTES = 12


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time limit of a request.

    :ivar seconds: the limit, from the request's arrival.
    :ivar expires: monotonic seconds.
    """

    seconds: float
    expires: float
    stream: bool

    def remaining(self) -> float:
        return max(0.0, self.expires - time.monotonic())

    def error(self) -> DeadlineExceeded:
        return DeadlineExceeded(self.seconds, stream=self.stream)


def deadline(config: EndpointConfig, timeout: str | None, began: float, *, stream: bool) -> Deadline:
    """The deadline of a request.

    :param timeout: the value of `TIMEOUT_HEADER`.
    :param began: monotonic seconds at which the request arrived.
    :raises InvalidField: the header is not a number of seconds that is allowed.
    """
    seconds = config.stream_deadline if stream and not requires_content_length(config) else reply_seconds(config)
    if timeout is not None:
        if not timeout.isascii() or not timeout.isdigit() or not 1 <= int(timeout[:9]) <= MAX_TIMEOUT:
            raise InvalidField(TIMEOUT_HEADER, f"it must be whole seconds from 1 to {MAX_TIMEOUT:.0f}")
        seconds = float(timeout)
    return Deadline(seconds, began + seconds, stream)


def reply_seconds(config: EndpointConfig) -> float:
    if config.deadline is not None:
        return config.deadline
    if config.batch_transform:
        return TRANSFORM_REPLY_SECONDS
    return ASYNC_REPLY_SECONDS if config.asynchronous else REPLY_SECONDS


def requires_content_length(config: EndpointConfig) -> bool:
    """Whether every reply needs a Content-Length, so that the events of a stream are collected into one body."""
    return config.asynchronous or config.batch_transform


def max_body(config: EndpointConfig) -> int:
    """The largest body in bytes. Batch transform's own variable raises it to the limit of the job; 0 names none."""
    if not config.batch_transform or config.max_payload_mb is None:
        return config.max_body
    return max(config.max_body, (config.max_payload_mb or TRANSFORM_MB) * MIB)


def execution_parameters(config: EndpointConfig, slots: int, max_model_len: int) -> dict[str, int | str]:
    """The reply of GET /execution-parameters.

    One record in each body and one body for each slot keep the engine full, and a bad record affects no other. A body
    may be as large as the longest prompt. SageMaker wants whole megabytes, and 100 MB at most for concurrent bodies.
    The strategy is spelled as the guide's example spells it ("Custom inference code with batch transform").

    :param slots: sequences that the engine decodes concurrently.
    :param max_model_len: tokens.
    """
    payload = config.max_payload_mb or min(6, max(1, -(-max_model_len * MAX_TOKEN_BYTES // MIB)))
    concurrent = config.max_concurrent_transforms or min(slots, max_in_flight(config, slots))
    return {
        "MaxConcurrentTransforms": max(1, min(concurrent, TRANSFORM_MB // payload)),
        "BatchStrategy": config.batch_strategy or "SINGLE_RECORD",
        "MaxPayloadInMB": payload,
    }
