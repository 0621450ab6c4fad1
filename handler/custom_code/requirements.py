"""`code/requirements.txt`, installed before the engine starts, as SageMaker's toolkits do; what is here already stays.

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
    """Every installed distribution as a constraint: the engine keeps the versions that it was tested with."""
    found = {(each.metadata["Name"] or "", each.version) for each in distributions()}
    return sorted(f"{name}=={version}" for name, version in found if name and version)


def install(file: Path, *, isolated: bool, constraints: Iterable[str] | None = None) -> None:
    """Runs pip in this interpreter; its output goes to the log.

    :param isolated: the endpoint has network isolation, so that nothing can be fetched.
    :raises SettingError: isolated, or pip failed; its account is in the log.
    """
    if isolated:
        fix = "Leave the file out and bring the packages in code/, or build an image that has them."
        raise SettingError(NAME, "nothing can be installed under network isolation", fix)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as kept:
        kept.write("\n".join(pins() if constraints is None else constraints))
        kept.flush()
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        command += ["--constraint", kept.name, "--requirement", str(file)]
        try:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise SettingError(NAME, f"pip did not end within {SECONDS:.0f} s", "Ask for less.") from None
    if status:
        fix = "Its account is in the log. A package that wants another version of what the engine uses cannot be had."
        raise SettingError(NAME, f"pip failed with status {status}", fix)
