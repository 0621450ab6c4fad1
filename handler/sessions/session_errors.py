"""What can be wrong with a session."""

from __future__ import annotations

from handler.errors import ClientError

HEADER = "X-Amzn-SageMaker-Session-Id"


class SessionsDisabled(ClientError):
    """A session was asked for and the endpoint keeps none."""

    code = "sessions_disabled"

    def __init__(self) -> None:
        super().__init__(
            "This endpoint keeps no sessions: leave the session id out, or set ENDPOINT_ENABLE_SESSIONS=true.",
            param=HEADER,
        )


class SessionNotFound(ClientError):
    """It never was, was closed, has expired, or was on a process that is no more."""

    status = 404
    kind = "not_found_error"
    code = "session_not_found"

    def __init__(self, why: str) -> None:
        super().__init__(f"The session {why}: begin another with 'NEW_SESSION' as session id.", param=HEADER)


class TooManySessions(ClientError):
    """The store is full of sessions that are still good."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_sessions"

    def __init__(self, limit: int, retry_after: int) -> None:
        self.limit, self.retry_after = limit, retry_after
        super().__init__(f"{limit} sessions are open, as many as may be: close one, or try again in {retry_after} s.")
