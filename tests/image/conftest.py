"""The image under test: `make image-test` names it. Without that, the tests that run an image are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample_model
from image import image_client
from image.image_client import ImageError
from tests.image.sagemaker_container import ENGINE, MEMORY_GB, Image, SageMakerContainer

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "neuron_stand_in"
IN_IMAGE = ("/opt/neuron-endpoint/code", "/opt/neuron-endpoint/packages")
BASE_PACKAGES = "/opt/base-packages"
# What vLLM's Neuron base has and a stand-in base has not: vLLM and torch, those of this environment, and a plugin.
NEURON = {"NEURON_STAND_IN": "1", "ENDPOINT_LINE": "nxdi-0.16", "ENDPOINT_INSTANCE": "ml.inf2.xlarge"}


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    name = os.environ.get("IMAGE_TEST")
    if name not in ("cpu", "neuron"):
        pytest.skip("`make image-test` builds an image and runs this")
    tag = f"neuron-endpoint:{name}"
    try:
        client = image_client.find()
        if client.name == "buildah":
            pytest.skip("buildah builds images, and runs none as SageMaker does")
        client.image_id(tag)
        limits = ("--read-only", f"--memory={MEMORY_GB}g")
        client.output("run", "--rm", "--network=host", *limits, *client.run_options, tag, "python", "-V")
    except ImageError as error:
        pytest.skip(f"no image can be run here: {error}")
    if name == "cpu":
        return Image(client, tag, (), ENGINE)
    site = tmp_path_factory.mktemp("site")
    site.chmod(0o755)
    code = (
        f"from pathlib import Path; from neuron_stand_in.installation import installed; installed(Path({str(site)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(STAND_IN)}, check=True)
    mounts = {sysconfig.get_path("purelib"): BASE_PACKAGES, str(site): "/opt/site", str(STAND_IN): "/opt/stand-in"}
    options = tuple(f"--volume={source}:{target}:ro" for source, target in mounts.items())
    path = ":".join((*IN_IMAGE, BASE_PACKAGES, "/opt/site", "/opt/stand-in"))
    small = {"PYTHONPATH": path, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return Image(client, tag, options, {**ENGINE, **NEURON, **small})


@pytest.fixture(scope="session")
def model() -> Path:
    return sample_model.path()


@pytest.fixture(scope="module", params=["", "10001"], ids=["root", "10001"])
def served(
    image: Image, model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SageMakerContainer]:
    """As SageMaker runs it, and as a user without rights."""
    container = SageMakerContainer(image, model, tmp_path_factory.mktemp("container") / "output", request.param)
    container.until_ping(200)
    yield container
    container.close()
