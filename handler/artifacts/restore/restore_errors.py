"""What can go wrong with a restore, beyond what can go wrong with any object (`handler.storage.storage_errors`)."""

from __future__ import annotations

from pathlib import Path

from handler.errors import SettingError
from handler.storage.storage_errors import ArtifactError


class RestoreTimedOut(ArtifactError):
    """The deadline passed. What is on disk is kept: the next restore goes on from there."""

    code = "artifact_restore_timed_out"

    def __init__(self, target: Path, done: int, total: int, doing: str) -> None:
        self.target, self.done, self.total, self.doing = target, done, total, doing
        super().__init__(
            f"The restore to {target} was not done in time: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, {doing}. "
            "Give it more time; the next start goes on from there."
        )


class NoSpace(SettingError):
    """The disk has too little room. Sizes in bytes.

    :param needed: what is still to be written; 0 when that was thought to fit and the disk filled up meanwhile.
    :param reason: what the system said then.
    """

    def __init__(self, setting: str, directory: Path, needed: int, free: int, reason: str = "") -> None:
        self.directory, self.needed, self.free, self.reason = directory, needed, free, reason
        if reason:
            problem = f"{directory} took no more while the artifacts were written ({reason}; {free / 1e6:,.0f} MB free)"
        else:
            problem = f"the artifacts need {needed / 1e6:,.0f} MB more and {directory} has {free / 1e6:,.0f} MB free"
        fix = "Give a directory on a larger volume, or a larger volume to the endpoint."
        super().__init__(setting, problem, fix)


class TargetRefused(SettingError):
    """The target is a place where nothing may be, or can be, written."""

    def __init__(self, setting: str, target: Path, problem: str) -> None:
        self.target = target
        super().__init__(setting, f"{target} {problem}", "Give a directory that this process may write and owns alone.")
