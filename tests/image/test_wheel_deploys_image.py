"""The wheel, in an empty environment, deploys the image: `make image-test` runs it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sample_model.facts import by_name
from tests.image import wheel_venv
from tests.image.sagemaker_container import Image
from tests.image.wheel_venv import ROOT

FACT = by_name("ping")


@pytest.mark.timeout(1800)
def test_the_wheel_deploys_the_image_and_invokes_it(image: Image, tmp_path: Path) -> None:
    installed = wheel_venv.make(tmp_path / "wheel")
    given = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}

    def run(*words: str) -> str:
        done = installed.run("neuron-endpoint", *words, **given)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    options = [f"--docker-option={option}" for option in (*image.client.run_options, *image.options)]
    docker = f"--docker={shlex.join(image.client.command)}"
    up = run("local", "up", "--bucket", "models", "--containers", "docker", docker, *options)
    try:
        given |= dict(line.removeprefix("export ").split("=", 1) for line in up.splitlines() if "=" in line)
        run("push", "--local", str(ROOT / "sample_model" / "weights"), "s3://models/sample/")
        settings = [f"--set={name}={value}" for name, value in image.environment.items()]
        run("deploy", "--local", "--image", image.tag, *settings, "chat", "s3://models/sample/")
        reply = run("invoke", "--local", "--temperature", "0", "chat", FACT.questions[0])
        assert reply.strip() == FACT.answer
        print("neuron-endpoint invoke:", reply)
    finally:
        run("local", "down")
