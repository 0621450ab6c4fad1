"""Further builds of the Neuron image over its small base: what stays the same. `make image-test` runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from image import image_client

ROOT = Path(__file__).parents[2]
CONTEXT = (
    *("completion", "container", "handler", "image", "model_packaging", "requirements"),
    *(".dockerignore", "Dockerfile", "LICENSE", "README.md", "pyproject.toml"),
)
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("IMAGE_TEST") != "lines", reason="`make image-test` runs this"),
]
# What podman writes into an image of Docker's format about the build, and not about the image.
OF_THE_BUILD = {"Id", "Digest", "Parent", "RepoTags", "RepoDigests", "NamesHistory", "GraphDriver", "History"}


def built(context: Path, tag: str, *options: str, base: str = "stand-in") -> dict[str, Any]:
    """Builds the image, prints the time, and returns what the client says about it."""
    words = [sys.executable, "-m", "image", "neuron", "--base", base, "--python", "3.11", "--tag", tag, *options]
    environment = {**os.environ, "PYTHONPATH": str(context)}
    done = subprocess.run(words, cwd=context, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    print(next(line for line in done.stdout.splitlines() if line.startswith(f"{tag} ")))
    return inspected(tag)


def inspected(tag: str) -> dict[str, Any]:
    (found,) = json.loads(image_client.find().output("image", "inspect", tag))
    return dict(found)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads."""
    copy = tmp_path_factory.mktemp("context")
    for name in CONTEXT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def first(context: Path) -> dict[str, Any]:
    return built(context, "neuron-endpoint:first")


def test_a_second_build_gives_the_same_image(context: Path, first: dict[str, Any]) -> None:
    assert built(context, "neuron-endpoint:second")["Id"] == first["Id"]


def test_a_base_named_by_its_digest_is_that_base(context: Path, first: dict[str, Any]) -> None:
    base = "localhost/neuron-endpoint-stand-in-base"
    (digest,) = {each.partition("@")[2] for each in inspected(f"{base}:neuron-python3.11")["RepoDigests"]}
    by_digest = built(context, "neuron-endpoint:by-digest", base=f"{base}@{digest}")
    assert by_digest["RootFS"]["Layers"] == first["RootFS"]["Layers"]
    with pytest.raises(AssertionError):
        built(context, "neuron-endpoint:by-digest", base=f"{base}@sha256:{64 * '0'}")


def test_a_change_of_the_code_changes_the_last_layer_only(context: Path, first: dict[str, Any]) -> None:
    with (context / "container" / "serve.py").open("a") as file:
        file.write("# A change.\n")
    changed = built(context, "neuron-endpoint:changed")["RootFS"]["Layers"]
    before = first["RootFS"]["Layers"]
    assert changed[:-1] == before[:-1]
    assert changed[-1] != before[-1]


def test_a_build_without_the_cache_gives_the_same_layers(context: Path, first: dict[str, Any]) -> None:
    shutil.copy(ROOT / "container" / "serve.py", context / "container")
    again = built(context, "neuron-endpoint:again", "--no-cache")
    assert again["RootFS"]["Layers"] == first["RootFS"]["Layers"]
    different = {key for key in first if again.get(key) != first[key]}
    print("Different:", *sorted(different))
    assert different <= OF_THE_BUILD
    was, now = ([step | {"comment": ""} for step in each["History"]] for each in (first, again))
    assert now == was


def test_two_builds_without_the_cache_give_the_same_image_in_the_format_of_oci(context: Path) -> None:
    options = ("--no-cache", "--oci")
    once, twice = (built(context, f"neuron-endpoint:{name}", *options) for name in ("oci", "oci-again"))
    assert once["Id"] == twice["Id"]
