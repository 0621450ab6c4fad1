"""PREFIX_AWARE routing: requests that begin alike go to the same instance, until it has enough of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import g, has_request_context

from local_sagemaker.hosting.instances.instance import Instance


@dataclass(frozen=True, slots=True)
class PrefixAware:
    """:param length: bytes of a body that are compared.
    :param threshold: requests in flight of an instance from which on another is taken."""

    length: int
    threshold: int

    def among(self, instances: Sequence[Instance], prefix: bytes) -> list[Instance]:
        """The one instance whose turn it is; all of them when each has enough.

        Each instance has a number for each prefix, and the largest wins: an instance more or less moves the prefixes of
        that one alone.
        """
        free = [each for each in instances if each.outstanding < self.threshold]
        if len(instances) < 2 or not free:
            return list(instances)
        return [max(free, key=lambda each: hashlib.blake2b(prefix + each.id.encode(), digest_size=8).digest())]

    def prefix(self, body: bytes, identifier: str | None) -> bytes:
        return body[: self.length] + b"\0" + (identifier or "").encode()


def prefix_aware(planned: dict[str, Any]) -> PrefixAware | None:
    """As a production variant asks for it."""
    asked = planned.get("RoutingConfig", {})
    if asked.get("RoutingStrategy") != "PREFIX_AWARE":
        return None
    about = asked["PrefixAwareRoutingConfig"]
    return PrefixAware(about["PrefixLength"], about["ConcurrencyThreshold"])


def body_here() -> bytes:
    """The body of the request that is being answered, which the gateway has read; none outside of one."""
    return bytes(g.get("body", b"")) if has_request_context() else b""
