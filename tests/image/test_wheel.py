"""`pip install neuron-endpoint` outside the repository, in an environment without vLLM."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.image import wheel_venv
from tests.image.wheel_venv import ROOT, WheelVenv

# `rich` draws the tables of a check that is not for a program.
HEAVY = {
    *("vllm", "torch", "transformers", "numpy", "boto3", "botocore", "flask", "gunicorn", "moto", "huggingface_hub"),
    *("rich", "pydantic", "httpx", "prometheus_client"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> WheelVenv:
    return wheel_venv.make(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_the_packages_and_nothing_of_the_tests(installed: WheelVenv) -> None:
    assert {path.suffix for path in installed.wheel.parent.iterdir() if path.name[0] != "."} == {".whl", ".gz", ".md"}
    names = zipfile.ZipFile(installed.wheel).namelist()
    packages = {"container", "handler", "model_packaging", "local_sagemaker"}
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name and ".data/" not in name}
    assert tops == packages
    assert {Path(name).suffix for name in names if name.startswith("container/page/")} >= {".html"}


def test_check_judges_a_recipe_without_heavy_imports(installed: WheelVenv, tmp_path: Path) -> None:
    recipe = shutil.copy(ROOT / "recipes" / "llama-3.1-8b-inf2.24xlarge.yaml", tmp_path)
    model = tmp_path / "model"
    shutil.copytree(ROOT / "sample_model" / "weights", model)
    code = (
        f"import atexit, sys; atexit.register(lambda: print(sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr));"
    )
    words = ["check", "--json", "--config", str(recipe), str(model)]
    code += f"from model_packaging.cli import main; main({words!r})"
    done = installed.run("python", "-c", code)
    assert done.stderr == "[]\n"
    assert json.loads(done.stdout)["findings"]
    assert installed.run("python", "-c", "import vllm").stderr.endswith("No module named 'vllm'\n")


def test_the_local_sagemaker_starts_and_refuses_an_image_it_cannot_run(installed: WheelVenv, tmp_path: Path) -> None:
    state = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    up = installed.run("neuron-endpoint", "local", "up", "--bucket", "models", **state)
    assert up.returncode == 0, up.stderr
    try:
        exports = dict(line.removeprefix("export ").split("=", 1) for line in up.stdout.splitlines() if "=" in line)
        given = {**state, **exports}
        model = str(ROOT / "sample_model" / "weights")
        pushed = installed.run("neuron-endpoint", "push", "--local", model, "s3://models/sample/", **given)
        assert pushed.returncode == 0, pushed.stderr
        words = ("deploy", "--local", "--dry-run", "--image", "neuron-endpoint:cpu", "chat", "s3://models/sample/")
        deployed = installed.run("neuron-endpoint", *words, **given)
        assert deployed.returncode == 0, deployed.stderr
        assert "neuron-endpoint:cpu" in deployed.stdout
    finally:
        assert installed.run("neuron-endpoint", "local", "down", **state).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_packaged(installed: WheelVenv, shell: str) -> None:
    places = {"bash": "bash-completion/completions/neuron-endpoint", "zsh": "zsh/site-functions/_neuron-endpoint"}
    file = installed.directory / "share" / places.get(shell, "fish/vendor_completions.d/neuron-endpoint.fish")
    printed = installed.run("neuron-endpoint", "completion", shell)
    assert file.read_text() == printed.stdout
