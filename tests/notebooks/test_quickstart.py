"""The README's first endpoint, line by line as a new user pastes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_model import facts

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
SETUP = "make setup && . .venv/bin/activate\n"


def test_the_first_endpoint_of_the_readme(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("## A first endpoint\n")[2]
    block = section.partition("```sh\n")[2].partition("```")[0]
    assert block.startswith(SETUP)  # the tests' own Python has what it sets up
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environ.update(
        LOCAL_SAGEMAKER_STATE=str(tmp_path),
        PYTHONPATH=str(ROOT),
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )
    picture = tmp_path / "bench.png"
    block = block.replace("/tmp/bench.png", str(picture))
    script = f"set -eu\ntrap 'neuron-endpoint local down >&2 || true' EXIT\n{block.removeprefix(SETUP)}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "Nothing here would keep it from starting." in said
    assert "Pushed 5 files to s3://models/sample/" in said
    assert "endpoint chat: InService" in done.stderr
    assert facts.by_name("ping").answer in said
    for count in (1, 4, 16):
        assert f"{count} at a time, 32 in all." in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Deleted endpoint chat." in said
    assert "Down." in said
