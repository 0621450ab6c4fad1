"""How a request finds its instance: by its prefix (PREFIX_AWARE routing), or by its stateful session."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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


class StickySessions:
    """The sessions of an endpoint. Guarded by the endpoint's lock."""

    def __init__(self) -> None:
        self._instances: dict[str, tuple[str, float]] = {}

    def instance(self, session: str) -> str | None:
        """Returns the id of a session's instance. None if it was never opened, is closed or has expired."""
        found = self._instances.get(session)
        if found is None:
            return None
        if found[1] <= time.time():
            del self._instances[session]
            return None
        return found[0]

    def opened(self, header: str, instance: str) -> None:
        """Records a new session.

        :param header: ``X-Amzn-SageMaker-New-Session-Id``: ``<id>; Expires=YYYY-MM-DDTHH:MM:SSZ``.
        """
        session, _, expires = header.partition(";")
        try:
            at = datetime.strptime(expires.strip(), "Expires=%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return
        self._instances[session.strip()] = (instance, at.timestamp())

    def closed(self, session: str) -> None:
        self._instances.pop(session.strip(), None)
