"""The scratch directory, looked at before anything is fetched into it or compiled there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from handler.artifacts.restore.restore_errors import TargetRefused
from handler.artifacts.restore.restore_target import READ_ONLY

SETTING = "ENDPOINT_SCRATCH"


def require_scratch(directory: Path, setting: str = SETTING, forbidden: Path = READ_ONLY) -> None:
    """Makes the directory, unless it is there.

    :raises TargetRefused: it is below `/opt/ml/model`, by a link as well, or nothing can be written there.
    """
    if directory.resolve().is_relative_to(forbidden.resolve()) or directory.absolute().is_relative_to(forbidden):
        raise TargetRefused(setting, directory, f"is below {forbidden}, which is read-only on SageMaker")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise TargetRefused(setting, directory, f"cannot be written ({error.strerror})") from error
