"""Sticky routing: maps a stateful session to the instance whose container opened it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


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
