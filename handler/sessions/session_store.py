"""The open sessions: bounded in number, each good until a time that is said when it begins.

A session's state is the key-value cache of what was said in it, which the engine finds again by the prompt's prefix;
so there is nothing to keep but who is here. SageMaker sends the requests of one session to one instance ("Stateful
sessions with Amazon SageMaker AI models").
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from handler.sessions.session_errors import SessionNotFound, TooManySessions


@dataclass(frozen=True, slots=True)
class Session:
    """:param expires: seconds since the epoch."""

    identity: str
    expires: float

    def header(self) -> str:
        """The value of X-Amzn-SageMaker-New-Session-Id."""
        return f"{self.identity}; Expires={datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Sessions:
    """Thread-safe. As sessions all live equally long, the oldest is always the first to expire.

    :param limit: open sessions.
    :param lifetime: seconds.
    :param clock: seconds since the epoch.
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
        """:raises TooManySessions: as many as may be are open."""
        with self._lock:
            self._expire()
            if len(self._open) >= self._limit:
                first = next(iter(self._open.values()))
                raise TooManySessions(self._limit, max(1, math.ceil(first.expires - self._clock())))
            session = Session(str(uuid.uuid4()), math.floor(self._clock() + self._lifetime))
            self._open[session.identity] = session
            return session

    def check(self, identity: str) -> Session:
        """:raises SessionNotFound: it is not open."""
        with self._lock:
            found = self._open.get(identity)
            if found is not None and found.expires <= self._clock():
                raise SessionNotFound("has expired")
            if found is None:
                raise SessionNotFound("is not open here")
            return found

    def close(self, identity: str) -> None:
        """:raises SessionNotFound: it is not open."""
        self.check(identity)
        with self._lock:
            self._open.pop(identity, None)

    def _expire(self) -> None:
        now = self._clock()
        for identity, session in list(self._open.items()):
            if session.expires > now:
                return
            del self._open[identity]
