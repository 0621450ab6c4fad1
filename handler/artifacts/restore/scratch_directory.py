"""Creates and checks the scratch directory before anything is written to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from handler.artifacts.restore.restore_errors import TargetRefused
from handler.artifacts.restore.restore_target import READ_ONLY

SETTING = "ENDPOINT_SCRATCH"


def require_scratch(directory: Path, setting: str = SETTING, forbidden: Path = READ_ONLY) -> None:
    """Creates the directory if it does not exist.

    :raises TargetRefused: it is below `/opt/ml/model` (also through a link), or it cannot be written.
    """
    if directory.resolve().is_relative_to(forbidden.resolve()) or directory.absolute().is_relative_to(forbidden):
        raise TargetRefused(setting, directory, f"is below {forbidden}, which is read-only on SageMaker")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise TargetRefused(setting, directory, f"cannot be written ({error.strerror})") from error
