"""PREFIX_AWARE routing: requests with the same prefix go to the same instance, until it has enough of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import g, has_request_context

from local_sagemaker.hosting.instances.instance import Instance


@dataclass(frozen=True, slots=True)
class PrefixAware:
    """The routing strategy of one variant.

    :param length: how many bytes of a body are compared.
    :param threshold: requests in flight on an instance above which another one is used.
    """

    length: int
    threshold: int

    def among(self, instances: Sequence[Instance], prefix: bytes) -> list[Instance]:
        """Returns the instance for a prefix, or all instances if each has reached the threshold.

        Each instance has a number for each prefix, and the largest wins (rendezvous hashing). So a new or removed
        instance only moves its own prefixes.
        """
        free = [each for each in instances if each.outstanding < self.threshold]
        if len(instances) < 2 or not free:
            return list(instances)
        return [max(free, key=lambda each: hashlib.blake2b(prefix + each.id.encode(), digest_size=8).digest())]

    def prefix(self, body: bytes, identifier: str | None) -> bytes:
        return body[: self.length] + b"\0" + (identifier or "").encode()


def prefix_aware(planned: dict[str, Any]) -> PrefixAware | None:
    """Returns the strategy that a production variant configures."""
    params = planned.get("RoutingConfig", {})
    if params.get("RoutingStrategy") != "PREFIX_AWARE":
        return None
    about = params["PrefixAwareRoutingConfig"]
    return PrefixAware(about["PrefixLength"], about["ConcurrencyThreshold"])


def body_here() -> bytes:
    """Returns the body of the current request, which the gateway has read."""
    return bytes(g.get("body", b"")) if has_request_context() else b""
