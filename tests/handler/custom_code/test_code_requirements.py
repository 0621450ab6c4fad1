"""code/requirements.txt with the real pip, and no network: packages from a directory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.requirements import install, pins
from handler.errors import SettingError

OFFLINE = EndpointConfig()
DOWNLOAD = EndpointConfig(requirements="download")


def requirements(directory: Path, text: str) -> Path:
    file = directory / "requirements.txt"
    file.write_text(text + "\n")
    return file


@pytest.mark.slow
def test_what_is_there_already_is_enough_and_stays(tmp_path: Path) -> None:
    assert f"numpy=={version('numpy')}" in pins()
    install(requirements(tmp_path, "numpy"), OFFLINE)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("numpy==1.0.1", "numpy==1.0.1"),
        ("no-such-package-anywhere", "no-such-package-anywhere"),
        ("this is no requirement", "Invalid requirement"),
    ],
)
def test_what_pip_cannot_install_beside_the_engine_ends_the_start(tmp_path: Path, wanted: str, said: str) -> None:
    file = requirements(tmp_path, wanted)
    with pytest.raises(SettingError, match="pip failed") as caught:
        install(file, OFFLINE)
    assert caught.value.setting == str(file)
    assert said in caught.value.problem
    assert "ENDPOINT_REQUIREMENTS=download" in caught.value.fix


def test_only_the_setting_allows_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **named: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    file = requirements(tmp_path, "numpy")
    install(file, EndpointConfig(requirements="none"))
    install(file, OFFLINE)
    install(file, DOWNLOAD)
    assert ["--no-index" in command for command in commands] == [True, False]


def test_a_download_with_network_isolation_is_rejected_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **named: pytest.fail("pip was run"))
    with pytest.raises(SettingError, match="network isolation"):
        install(requirements(tmp_path, "numpy"), EndpointConfig(requirements="download", network_isolation=True))


@pytest.mark.slow
@pytest.mark.parametrize("writable", [True, False])
def test_a_wheel_beside_the_code_is_installed_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    """Into a directory of the test's, so that the environment of the other tests stays as it is."""
    (tmp_path / "requirements").mkdir()
    info = "own_package_for_hooks-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "requirements" / "own_package_for_hooks-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("own_package_for_hooks.py", "VALUE = 7\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: own-package-for-hooks\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    if writable:
        monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "target"))
    else:  # as in a container with a read-only file system
        monkeypatch.setattr(os, "access", lambda *_: False)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    config = EndpointConfig(network_isolation=True, scratch=tmp_path / "scratch")
    install(requirements(tmp_path, "own-package-for-hooks"), config)
    command = [sys.executable, "-c", "import own_package_for_hooks as own; print(own.VALUE)"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.strip() == b"7"
    assert (find_spec("own_package_for_hooks") is not None) is not writable
