"""The headers that the gateway forwards, in each direction. All others are removed, as SageMaker does.

Names, members and lengths are those of botocore's model of sagemaker-runtime. The two headers of adapters are from
aws/model-hosting-container-standards (sagemaker/lora/constants.py); the model does not have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from werkzeug.datastructures import Headers

from local_sagemaker.gateway.gateway_errors import InvalidMember, SessionNeedsInvokeEndpoint

AMZN = "X-Amzn-SageMaker-"
INVOKED_VARIANT = "x-Amzn-Invoked-Production-Variant"
STREAM_CONTENT_TYPE = AMZN + "Content-Type"
TARGET_VARIANT = AMZN + "Target-Variant"
SESSION_ID = AMZN + "Session-Id"
NEW_SESSION = AMZN + "New-Session-Id"
CLOSED_SESSION = AMZN + "Closed-Session-Id"
COMPONENT = AMZN + "Inference-Component"
ADAPTER = AMZN + "Adapter-Identifier"
ADAPTER_ALIAS = AMZN + "Adapter-Alias"
TARGET_MODEL = AMZN + "Target-Model"
PREFIX_AWARE_ID = AMZN + "Prefix-Aware-Id"


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """A header of a client's request: ``name`` is the client's, ``at_container`` the container's."""

    name: str
    at_container: str
    member: str
    longest: int

    def check(self, value: str) -> None:
        if len(value) > self.longest:
            raise InvalidMember(self.member, f"Member must have length less than or equal to {self.longest}")
        if not value.isascii():
            raise InvalidMember(self.member, r"Member must satisfy regular expression pattern: \p{ASCII}*")


def passed(name: str, member: str, longest: int) -> RequestHeader:
    return RequestHeader(AMZN + name, AMZN + name, member, longest)


COMMON = (
    RequestHeader("Content-Type", "Content-Type", "contentType", 1024),
    passed("Custom-Attributes", "customAttributes", 1024),
    passed("Target-Variant", "targetVariant", 63),
    passed("Inference-Id", "inferenceId", 64),
    passed("Inference-Component", "inferenceComponentName", 63),
    passed("Session-Id", "sessionId", 256),
    passed("Prefix-Aware-Id", "prefixAwareId", 64),
    passed("Adapter-Identifier", "adapterIdentifier", 1024),
    passed("Adapter-Alias", "adapterAlias", 1024),
)
REGULAR = (
    *COMMON,
    RequestHeader("Accept", "Accept", "accept", 1024),
    passed("Target-Model", "targetModel", 1024),
)
ASYNCHRONOUS = (
    RequestHeader(AMZN + "Content-Type", "Content-Type", "contentType", 1024),
    RequestHeader(AMZN + "Accept", "Accept", "accept", 1024),
    passed("Custom-Attributes", "customAttributes", 1024),
    passed("Inference-Id", "inferenceId", 64),
)
STREAMED = (*COMMON, RequestHeader(AMZN + "Accept", "Accept", "accept", 1024))

STREAMED_REPLY = (AMZN + "Custom-Attributes",)
REGULAR_REPLY = (*STREAMED_REPLY, NEW_SESSION, CLOSED_SESSION, "Content-Type")


def for_container(client: Headers, table: Iterable[RequestHeader]) -> Iterator[tuple[str, str]]:
    """Returns the headers for the container."""
    for header in table:
        value = client.get(header.name)
        if value is not None:
            header.check(value)
            yield header.at_container, value


def refuse_new_session(client: Headers) -> None:
    """Rejects a streamed call that creates a stateful session. A streamed call can only use one."""
    if client.get(SESSION_ID) == "NEW_SESSION":
        raise SessionNeedsInvokeEndpoint
