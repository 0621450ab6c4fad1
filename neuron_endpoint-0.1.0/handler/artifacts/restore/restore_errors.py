"""Errors of a restore. Errors of single objects are in `handler.storage.storage_errors`."""

from __future__ import annotations

from pathlib import Path

from handler.errors import SettingError


class NoSpace(SettingError):
    """The disk has too little free space. Sizes in bytes.

    :param needed: the bytes still to write. 0 if they seemed to fit and the disk filled up in the meantime.
    :param reason: the message of the system in that case.
    """

    def __init__(self, setting: str, directory: Path, needed: int, free: int, reason: str = "") -> None:
        if reason:
            problem = f"{directory} filled up while the artifacts were written ({reason}; {free / 1e6:,.0f} MB free)"
        else:
            problem = f"the artifacts need {needed / 1e6:,.0f} MB more and {directory} has {free / 1e6:,.0f} MB free"
        fix = "Give a directory on a larger volume, or a larger volume to the endpoint."
        super().__init__(setting, problem, fix)


class TargetRefused(SettingError):
    """The target directory may not or cannot be written."""

    def __init__(self, setting: str, target: Path, problem: str) -> None:
        super().__init__(setting, f"{target} {problem}", "Give a directory that this process may write and owns alone.")
