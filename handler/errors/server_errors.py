"""Errors that end a start, and those of the endpoint while it serves."""

from __future__ import annotations

from handler.errors.base import EndpointError, ServerError


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
    ends_lines = True
    retry_after = 5

    def __init__(self) -> None:
        super().__init__("The endpoint is shutting down and accepts no new requests: try again.")


class EngineFailed(ServerError):
    """The engine died, hangs, or failed while this request ran.

    :param in_core: whether the engine's core had the request. False: it waited for its turn.
    """

    status = 503
    code = "engine_failed"
    ends_lines = True
    retry_after = 10

    def __init__(self, reason: str, *, in_core: bool = True) -> None:
        self.reason, self.in_core = reason, in_core
        super().__init__(f"The engine has failed ({reason}): try again.")


class GenerationFailed(ServerError):
    """One request failed inside the engine. The engine goes on."""

    code = "generation_failed"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The engine could not finish this request ({reason}).")


class GrammarNotTried(ServerError):
    """A grammar's trial could not begin, was ended from outside, or did not get its processor time."""

    status = 503
    code = "grammar_not_tried"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__("The request's grammar could not be tried, for a reason that is not the grammar's: try again.")


class EngineBusy(ServerError):
    """vLLM's own limit is reached (`max_num_queued_reqs`, 0.29 and later), it asks for another try (0.32), or it takes
    minutes to load an adapter beside its requests.
    """

    status = 503
    code = "engine_busy"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__("The engine takes no further request now: try again.")


class DeadlineExceeded(ServerError):
    """The request did not finish before its deadline, after which nobody waits for the reply. Its slot is freed."""

    status = 504
    code = "deadline_exceeded"

    def __init__(self, seconds: float, *, stream: bool) -> None:
        self.seconds = seconds
        fix = "request fewer tokens" if stream else "request fewer tokens, or set 'stream' to true"
        super().__init__(f"The request did not finish before its deadline of {seconds:g} s: {fix}.")


class SettingError(EndpointError):
    """A setting that cannot work. It ends the process at once, rather than failing a health check an hour later.

    :param setting: the variable or the configuration key at fault.
    """

    code = "invalid_setting"

    def __init__(self, setting: str, problem: str, fix: str) -> None:
        self.setting, self.problem, self.fix = setting, problem, fix
        super().__init__(f"{setting}: {problem}. {fix}", param=setting)


class NoDirectory(SettingError):
    """A path that is no directory on this machine, wherever a command or a setting takes one."""

    def __init__(self, setting: str, path: object, fix: str = "Give a directory, s3://bucket/prefix or a hub id."):
        super().__init__(setting, f"there is no directory {str(path)[:200]}", fix)


class StartFailed(ServerError):
    """A stage of the start failed for a reason that is not a setting."""

    code = "start_failed"

    def __init__(self, stage: str, reason: str) -> None:
        self.stage, self.reason = stage, reason
        super().__init__(f"The start failed at '{stage}': {reason}")
