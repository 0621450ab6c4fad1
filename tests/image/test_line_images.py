"""The Neuron image over a stand-in base with the Python of each line: it is built, and what needs no engine runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from image import image_client

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", ["3.12", "3.13", "3.14"])
def test_it_is_built_and_judges_settings(python: str) -> None:
    if os.environ.get("IMAGE_TEST") != "lines":
        pytest.skip("`make image-test` runs this")
    tag = f"neuron-endpoint:neuron-python{python}"
    build = [
        sys.executable,
        "-m",
        "image",
        "neuron",
        "--base",
        "stand-in",
        "--python",
        python,
        "--tag",
        tag,
        "--optional",
    ]
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if "No image is built" in built.stdout:
        pytest.skip(built.stdout.strip().splitlines()[-1])
    assert built.returncode == 0
    client = image_client.find()
    run = [*client.command, "run", "--rm", "--network=host", "--read-only", *client.run_options]
    version = subprocess.run([*run, tag, "python", "-V"], capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"Python {python}.")
    refused = subprocess.run([*run, "--env=ENDPOINT_MODL=x", tag, "serve"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "Did you mean ENDPOINT_MODEL?" in refused.stderr) == (2, True)
