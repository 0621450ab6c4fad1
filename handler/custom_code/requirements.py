"""Installs `code/requirements.txt` before the engine starts, as SageMaker's toolkits do. Installed versions are kept.

Source: sagemaker-inference-toolkit, src/sagemaker_inference/model_server.py (_install_requirements).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from handler.errors import SettingError

NAME = "code/requirements.txt"
SECONDS = 1800.0


def pins() -> list[str]:
    """A constraint for every installed distribution, so that the engine keeps the versions with which it was tested."""
    found = {(each.metadata["Name"] or "", each.version) for each in distributions()}
    return sorted(f"{name}=={version}" for name, version in found if name and version)


def install(file: Path, *, isolated: bool, constraints: Iterable[str] | None = None) -> None:
    """Runs pip with this interpreter. Its output goes to the log.

    :param isolated: the endpoint has network isolation, so nothing can be downloaded.
    :param constraints: the versions to keep. None: those of all installed distributions.
    :raises SettingError: the endpoint is isolated, or pip failed.
    """
    if isolated:
        fix = "Remove the file and put the packages into code/, or build an image that has them."
        raise SettingError(NAME, "nothing can be installed with network isolation", fix)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints_file:
        constraints_file.write("\n".join(pins() if constraints is None else constraints))
        constraints_file.flush()
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        command += ["--constraint", constraints_file.name, "--requirement", str(file)]
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise SettingError(NAME, f"pip did not end within {SECONDS:.0f} s", "Require fewer packages.") from None
    if status:
        fix = (
            "pip's output is in the log. A package cannot be installed if it needs another version of an installed one."
        )
        raise SettingError(NAME, f"pip failed with status {status}", fix)
