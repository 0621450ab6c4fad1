"""The limits of a request, from the settings and from what the engine can hold. Pure.

SageMaker gives a reply 60 s, a stream 8 minutes, an asynchronous request and a batch transform's up to an hour
("Custom inference code with hosting services"; "InvokeEndpointAsync"; "CreateTransformJob", ModelClientConfig). The
defaults stay a little below, so that the client reads what happened instead of a time-out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from handler.config.endpoint_config import MIB, EndpointConfig
from handler.errors import DeadlineExceeded, InvalidField
from handler.startup.admission import places

REPLY = 58.0
HOUR = 3590.0
# What InvokeEndpointAsync calls the time a request may take; whoever sends it to the container is heard as well.
TIMEOUT_HEADER = "X-Amzn-SageMaker-InvocationTimeoutSeconds"
LONGEST = 3600.0
# Batch transform: largest body times bodies at once may not be more.
TRANSFORM_MB = 100
# Bytes that a token of JSON-escaped text may take: "\\u4f60\\u597d" is one token to many models.
LONGEST_TOKEN = 12


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a request is ended. `until` in monotonic seconds."""

    seconds: float
    until: float
    stream: bool

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def error(self) -> DeadlineExceeded:
        return DeadlineExceeded(self.seconds, stream=self.stream)


def deadline(config: EndpointConfig, asked: str | None, began: float, *, stream: bool) -> Deadline:
    """The deadline of a request that came at `began`, in monotonic seconds.

    :param asked: the value of `TIMEOUT_HEADER`.

    :raises InvalidField: the header asks for a time that is none.
    """
    seconds = config.stream_deadline if stream and not whole_only(config) else reply_seconds(config)
    if asked is not None:
        if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked[:9]) <= LONGEST:
            raise InvalidField(TIMEOUT_HEADER, f"it must be whole seconds from 1 to {LONGEST:.0f}")
        seconds = float(asked)
    return Deadline(seconds, began + seconds, stream)


def reply_seconds(config: EndpointConfig) -> float:
    if config.deadline is not None:
        return config.deadline
    return HOUR if whole_only(config) else REPLY


def whole_only(config: EndpointConfig) -> bool:
    """Replies must have a Content-Length: what would be streamed is collected first."""
    return config.asynchronous or config.batch_transform


def max_body(config: EndpointConfig) -> int:
    """Bytes. Batch transform's own variable raises the limit to what its job was created with."""
    return max(config.max_body, (config.max_payload_mb or 0) * MIB) if config.batch_transform else config.max_body


def transform(config: EndpointConfig, slots: int, max_model_len: int) -> dict[str, int | str]:
    """What GET /execution-parameters answers.

    A record a body and a body for each slot keeps the engine full, and one bad record costs one record. A body is as
    large as the longest prompt can be; SageMaker asks for whole megabytes, and for no more than 100 at once in all.

    :param slots: sequences that the engine decodes at once.
    :param max_model_len: tokens.
    """
    payload = config.max_payload_mb or min(6, max(1, -(-max_model_len * LONGEST_TOKEN // MIB)))
    together = config.max_concurrent_transforms or min(slots, places(config, slots))
    return {
        "MaxConcurrentTransforms": max(1, min(together, TRANSFORM_MB // payload)),
        "BatchStrategy": config.batch_strategy or "SingleRecord",
        "MaxPayloadInMB": payload,
    }
