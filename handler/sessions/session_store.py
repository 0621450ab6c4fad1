"""The open sessions, with a limit on their number, and their errors. Each expires at a time that is set when it begins.

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

from handler.errors import ClientError

HEADER = "X-Amzn-SageMaker-Session-Id"


class SessionsDisabled(ClientError):
    """The request has the field of a session, its id or the request type, and sessions are off."""

    code = "sessions_disabled"

    def __init__(self, field: str) -> None:
        super().__init__(
            f"Sessions are disabled on this endpoint: leave {field} out, or set ENDPOINT_ENABLE_SESSIONS=true.",
            param=field,
        )


class SessionNotFound(ClientError):
    """The session never existed, was closed, has expired, or belonged to a process that has ended.

    A 400, as in aws/model-hosting-container-standards (sagemaker/sessions/transform.py).
    """

    code = "session_not_found"

    def __init__(self, why: str) -> None:
        super().__init__(f"The session {why}: start a new one with the session id 'NEW_SESSION'.", param=HEADER)


class TooManySessions(ClientError):
    """The limit of open sessions is reached."""

    status = 429
    code = "too_many_sessions"

    def __init__(self, limit: int, retry_after: int) -> None:
        self.limit, self.retry_after = limit, retry_after
        super().__init__(f"{limit} sessions are open, which is the limit: close one, or try again in {retry_after} s.")


@dataclass(frozen=True, slots=True)
class Session:
    """An open session. `expires` is in seconds since the epoch."""

    identity: str
    expires: float

    def header(self) -> str:
        """The value of X-Amzn-SageMaker-New-Session-Id."""
        return f"{self.identity}; Expires={datetime.fromtimestamp(self.expires, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Sessions:
    """The open sessions. Thread-safe.

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
        """:raises TooManySessions: the limit of open sessions is reached."""
        with self._lock:
            if len(self._open) >= self._limit:
                self._expire()
            if len(self._open) >= self._limit:
                first = min(self._open.values(), key=lambda session: session.expires)
                raise TooManySessions(self._limit, max(1, math.ceil(first.expires - self._clock())))
            session = Session(str(uuid.uuid4()), math.floor(self._clock() + self._lifetime))
            self._open[session.identity] = session
            return session

    def check(self, identity: str) -> Session:
        """:raises SessionNotFound: no session with this id is open."""
        with self._lock:
            found = self._open.get(identity)
            if found is not None and found.expires <= self._clock():
                raise SessionNotFound("has expired")
            if found is None:
                raise SessionNotFound("is not open here")
            return found

    def close(self, identity: str) -> None:
        """:raises SessionNotFound: the session is not open."""
        self.check(identity)
        with self._lock:
            if self._open.pop(identity, None) is None:
                raise SessionNotFound("is not open here")

    def _expire(self) -> None:
        now = self._clock()
        self._open = {identity: session for identity, session in self._open.items() if session.expires > now}
