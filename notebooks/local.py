"""Starts a local SageMaker for the notebooks, and removes it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
# SageMaker's time limits, four times as long. A machine that others use takes longer for a start than an instance does.
SPEED = "0.25"


@contextmanager
def up(state: Path) -> Iterator[dict[str, str]]:
    """Yields the environment with which a kernel's boto3 and `--local` find it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environ.update(LOCAL_SAGEMAKER_STATE=str(state), PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "model_packaging", "local"]
    subprocess.run(
        [*command, "up", "--speed", SPEED, "--ping-every", "0.5", "--with-process", str(os.getpid())],
        env=environ,
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield environ
    finally:
        subprocess.run([*command, "down"], env=environ, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
