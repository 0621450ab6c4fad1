"""The errors of sessions."""

from __future__ import annotations

from handler.errors import ClientError

HEADER = "X-Amzn-SageMaker-Session-Id"


class SessionsDisabled(ClientError):
    """The request has a session id or a request type, and sessions are off.

    :param field: which one it has.
    """

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
