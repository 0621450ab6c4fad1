"""The wheel of a release's dry run in a virtual environment that has nothing else: no vLLM, no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
OUTSIDE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@dataclass(frozen=True)
class WheelVenv:
    directory: Path
    wheel: Path

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment, outside the repository."""
        program, *rest = words
        command = [self.bin / program, *rest]
        where, given = self.directory, {**OUTSIDE, **environment}
        return subprocess.run(command, cwd=where, env=given, capture_output=True, text=True, check=False, timeout=900)


def uv(*words: str | Path) -> None:
    done = subprocess.run(
        [UV, *words], env={**OUTSIDE, "UV_SYSTEM_CERTS": "true"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def make(directory: Path) -> WheelVenv:
    """A user's `pip install 'neuron-endpoint[local]'`."""
    release: list[str | Path] = [sys.executable, "-m", "image.release", "--dry-run", "--out", directory / "dist"]
    environment = {**os.environ, "UV_SYSTEM_CERTS": "true"}
    subprocess.run(release, cwd=ROOT, env=environment, check=True)
    (wheel,) = (directory / "dist").glob("*.whl")
    uv("venv", "--quiet", "--python", sys.executable, directory / "venv")
    python = directory / "venv" / "bin" / "python"
    lock = ROOT / "requirements" / "lock.txt"
    uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        lock,
        f"neuron-endpoint[local] @ {wheel.as_uri()}",
    )
    return WheelVenv(directory / "venv", wheel)
