"""Errors of the endpoint while it serves: it is not ready, its engine failed, or the deadline passed."""

from __future__ import annotations

from handler.errors.base import ServerError


class NotReady(ServerError):
    """The engine is still starting."""

    status = 503
    code = "starting"
    retry_after = 5

    def __init__(self, stage: str) -> None:
        self.stage = stage
        super().__init__(f"The endpoint is starting (stage: {stage}): try again when GET /ping answers 200.")


class Draining(ServerError):
    """SIGTERM was received: running requests are finished, and new ones are rejected."""

    status = 503
    code = "draining"
    retry_after = 5

    def __init__(self) -> None:
        super().__init__("The endpoint is shutting down and accepts no new requests: try again.")


class EngineFailed(ServerError):
    """The engine died, hangs, or failed while this request ran.

    :param in_core: whether the engine's core had the request. False: it waited for its turn.
    """

    status = 503
    code = "engine_failed"
    retry_after = 10

    def __init__(self, reason: str, *, in_core: bool = True) -> None:
        self.reason, self.in_core = reason, in_core
        super().__init__(f"The engine has failed ({reason}) and is being replaced: try again.")


class GenerationFailed(ServerError):
    """One request failed inside the engine. The engine goes on."""

    code = "generation_failed"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The engine could not finish this request ({reason}).")


class DeadlineExceeded(ServerError):
    """The request did not finish before its deadline, after which nobody waits for the reply. Its slot is freed."""

    status = 504
    code = "deadline_exceeded"

    def __init__(self, seconds: float, *, stream: bool) -> None:
        self.seconds = seconds
        fix = "request fewer tokens" if stream else "request fewer tokens, or set 'stream' to true"
        super().__init__(f"The request did not finish before its deadline of {seconds:g} s: {fix}.")
