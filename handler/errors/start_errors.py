"""Errors that end a start: a setting that cannot work, or a stage that failed."""

from __future__ import annotations

from handler.errors.base import EndpointError, ServerError


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
