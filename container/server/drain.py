"""The drain: running requests may finish, new ones get a 503, and then the connections close."""

from __future__ import annotations

from container.http.connections import Connections
from container.service import Service
from handler.errors import Draining

LAST_LOOKS = 20
# Seconds for the last replies to reach their clients.
LAST_REPLIES_SECONDS = 1.5


def drain(service: Service, connections: Connections) -> None:
    """Returns when nothing runs and no connection is open, or when the time for it is over."""
    connections.close_conversations()
    if not service.admission.wait_empty(service.config.drain):
        for engine in service.engines():
            engine.fail_requests(Draining())  # a stream that is ended early has the error as its last event
        service.admission.wait_empty(1.0)
    for _ in range(LAST_LOOKS):  # those that opened when the drain began, or had just sent their last reply
        connections.close_conversations()
        if connections.wait_closed(1.0 / LAST_LOOKS, conversations=True):
            break
    connections.stop()
    connections.wait_closed(LAST_REPLIES_SECONDS)
