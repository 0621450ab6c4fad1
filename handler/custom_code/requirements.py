"""Installs the `requirements.txt` beside custom code before the engine starts. Installed versions are kept.

Offline it installs from wheels in the directory `requirements/` beside the file, as the AWS vLLM images do
(model_hosting_container_standards, common/dependency_manager.py). Those, and SageMaker's toolkits, also download
(sagemaker_inference/model_server.py). Here a setting has to allow it.
"""

from __future__ import annotations

import importlib
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

NAME: Final = "requirements.txt"
WHEELS: Final = "requirements"
PACKAGES: Final = "packages"
SECONDS: Final = 1800.0
OFFLINE: Final = "Put wheels into requirements/ beside it (pip download), or set ENDPOINT_REQUIREMENTS=download."


def pins() -> list[str]:
    """A constraint for every installed distribution, so that the engine keeps the versions with which it was tested."""
    installed = {(each.metadata["Name"] or "", each.version) for each in distributions()}
    return sorted(f"{name}=={version}" for name, version in installed if name and version)


def install(file: Path, config: EndpointConfig, constraints: Iterable[str] | None = None) -> None:
    """Runs pip with this interpreter, as ENDPOINT_REQUIREMENTS says. Its output goes to the log.

    :param constraints: the versions to keep. None: those of all installed distributions.
    :raises SettingError: the endpoint may download but has network isolation, or pip failed.
    """
    if config.requirements == "none":
        return
    offline = config.requirements == "offline"
    if not offline and config.network_isolation:
        fix = f"Put wheels into {WHEELS}/ beside {NAME} and leave the setting out."
        raise SettingError("ENDPOINT_REQUIREMENTS", "nothing can be downloaded with network isolation", fix)
    wheels, place = file.with_name(WHEELS), _place(config)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints_file:
        constraints_file.write("\n".join(pins() if constraints is None else constraints))
        constraints_file.flush()
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        command += ["--no-index"] if offline else []
        command += ["--find-links", str(wheels)] if wheels.is_dir() else []
        command += ["--prefix", str(place)] if place else []
        command += ["--constraint", constraints_file.name, "--requirement", str(file)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise SettingError(
                str(file), f"pip did not end within {SECONDS:.0f} s", "Require fewer packages."
            ) from None
    sys.stderr.write(done.stderr)
    if done.returncode:
        said = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        problem = f"pip failed with status {done.returncode}: {' '.join(said)[:400] or 'its output is in the log'}"
        own = "A package cannot be installed if it needs another version of an installed one."
        raise SettingError(str(file), problem.rstrip("."), OFFLINE if offline else own)
    if place:
        _use(place)


def _place(config: EndpointConfig) -> Path | None:
    """Where packages go that Python's own place does not take: its file system is read-only, or another user's.

    pip would choose the user's directory, of which this process would not know.
    """
    return None if os.access(sysconfig.get_path("purelib"), os.W_OK) else config.scratch / PACKAGES


def _use(place: Path) -> None:
    """Has this process and those that it starts find the packages."""
    for directory in map(str, sorted(place.glob("**/*-packages"))):  # Debian's Python has a name of its own
        site.addsitedir(directory)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), directory)))
    importlib.invalidate_caches()
