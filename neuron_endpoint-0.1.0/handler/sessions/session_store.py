"""The open sessions, with a limit on their number. Each expires at a time that is set when it begins.

The state of a session is the key-value cache of its conversation, which the engine finds again by the prompt's prefix.
So only the session ids and their expiry are stored. SageMaker sends all requests of a session to the same instance
("Stateful sessions with Amazon SageMaker AI models").
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile

from handler.sessions.session_errors import SessionNotFound, TooManySessions


@dataclass(frozen=True, slots=True)
class Session:
    """An open session.

    :param expires: seconds since the epoch.
    """

    identity: str
    expires: float

    def header(self) -> str:
        """The value of X-Amzn-SageMaker-New-Session-Id."""
        return f"{self.identity}; Expires={datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Sessions:
    """The open sessions. Thread-safe. All sessions have the same lifetime, so the oldest is the first to expire.

    :param limit: the most open sessions.
    :param lifetime: of a session, in seconds.
    :param clock: returns seconds since the epoch.
    """

    def __init__(self, limit: int, lifetime: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._lifetime = lifetime
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._open)

    def begin(self) -> Session:
        """Opens a session.

        :raises TooManySessions: the limit of open sessions is reached.
        """
        with self._lock:
            self._expire()
            if len(self._open) >= self._limit:
                first = next(iter(self._open.values()))
                raise TooManySessions(self._limit, max(1, math.ceil(first.expires - self._clock())))
            session = Session(str(uuid.uuid4()), math.floor(self._clock() + self._lifetime))
            self._open[session.identity] = session
            return session

    def check(self, identity: str) -> Session:
        """The open session with this id.

        :raises SessionNotFound: it is not open.
        """
        with self._lock:
            found = self._open.get(identity)
            if found is not None and found.expires <= self._clock():
                raise SessionNotFound("has expired")
            if found is None:
                raise SessionNotFound("is not open here")
            return found

    def close(self, identity: str) -> None:
        """Closes a session.

        :raises SessionNotFound: it is not open.
        """
        self.check(identity)
        with self._lock:
            if self._open.pop(identity, None) is None:
                raise SessionNotFound("is not open here")

    def _expire(self) -> None:
        now = self._clock()
        expired = list(takewhile(lambda session: session.expires <= now, self._open.values()))
        for session in expired:
            del self._open[session.identity]
