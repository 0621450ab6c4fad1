"""The time limit of a request, from the settings and from its own header. Pure.

SageMaker allows 60 s for a reply ("Custom inference code with hosting services"), 15 minutes for an asynchronous
request that names no time ("InvokeEndpointAsync"), and 10 minutes for a request of a batch transform whose job names
none ("CreateTransformJob", ModelClientConfig). 8 minutes for a stream have no source of SageMaker's own. The defaults
are a little lower, so that the client reads an error and not a time-out. No variable tells the container of a job's own
time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from handler.config.endpoint_config import EndpointConfig
from handler.errors import DeadlineExceeded, InvalidField

REPLY_SECONDS = 58.0
ASYNC_REPLY_SECONDS = 890.0
TRANSFORM_REPLY_SECONDS = 590.0
# InvokeEndpointAsync's header. No source says that SageMaker passes it on. Clients of the container may send it.
TIMEOUT_HEADER = "X-Amzn-SageMaker-InvocationTimeoutSeconds"
MAX_TIMEOUT, MAX_DIGITS = 3600.0, 9


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
        whole = timeout.isascii() and timeout.isdigit() and len(timeout) <= MAX_DIGITS
        if not whole or not 1 <= int(timeout) <= MAX_TIMEOUT:
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
