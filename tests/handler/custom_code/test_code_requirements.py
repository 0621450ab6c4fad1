"""code/requirements.txt with the real pip, and no network: packages from a directory."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from handler.custom_code.requirements import install, pins
from handler.errors import SettingError


def requirements(directory: Path, text: str) -> Path:
    file = directory / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {directory}\n{text}\n")
    return file


@pytest.mark.slow
def test_what_is_there_already_is_enough_and_stays(tmp_path: Path) -> None:
    assert f"numpy=={version('numpy')}" in pins()
    install(requirements(tmp_path, "numpy"), isolated=False)


@pytest.mark.parametrize("wanted", ["numpy==1.0.1", "no-such-package-anywhere", "this is no requirement"])
def test_what_pip_cannot_install_beside_the_engine_ends_the_start(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(SettingError, match="pip failed") as caught:
        install(requirements(tmp_path, wanted), isolated=False)
    assert caught.value.setting == "code/requirements.txt"


def test_network_isolation_refuses_by_name_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **named: pytest.fail("pip was run"))
    with pytest.raises(SettingError, match="network isolation"):
        install(requirements(tmp_path, "numpy"), isolated=True)


@pytest.mark.slow
def test_a_package_of_ones_own_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a directory of the test's, so that the environment of the other tests stays as it is."""
    package = tmp_path / "own_package_for_hooks"
    package.mkdir()
    (package / "own_package_for_hooks.py").write_text("VALUE = 7\n")
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "own_backend"\nbackend-path = ["."]\n'
    )
    (package / "own_backend.py").write_text(BACKEND)
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    install(requirements(tmp_path, str(package)), isolated=False)
    command = [sys.executable, "-c", "import own_package_for_hooks as own; print(own.VALUE)"]
    seen = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "target")}, capture_output=True, check=True)
    assert seen.stdout.strip() == b"7"


# The smallest build backend there is: nothing has to be fetched to build with it.
BACKEND = """
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "own_package_for_hooks-1.0-py3-none-any.whl"
    info = "own_package_for_hooks-1.0.dist-info"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.write("own_package_for_hooks.py")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: own-package-for-hooks\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
