"""The endpoint from its own venv, and a gateway in front of it; the clients are in this one.

`ENDPOINT_BIN` is the directory of `serve`, `vllm` and the gateway's Python.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.clients.asked import BIN, ENDPOINT, REGION, ROOT
from tests.endpoint import serve_process
from tests.endpoint.serve_process import ServeProcess, free_port

WEIGHTS = ROOT / "sample_model" / "weights"
ROLE = "arn:aws:iam::123456789012:role/sagemaker"
# The model's.
SETTINGS = {
    "SM_VLLM_TOOL_CALL_PARSER": "hermes",
    "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true",
    "SM_VLLM_STRUCTURED_OUTPUTS_CONFIG": '{"disable_any_whitespace": true}',
}
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or its import asks the internet for prices, for 10 s


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """`serve` with the sample model, ready. Nothing of its settings is there for a client's sake."""
    directory = tmp_path_factory.mktemp("endpoint")
    serve_process.SERVE = BIN / "serve"
    (directory / "opt-ml").mkdir()
    (directory / "opt-ml" / "model").symlink_to(WEIGHTS)
    served = ServeProcess(
        directory,
        {
            "PYTHONPATH": str(ROOT),
            "SAGEMAKER_BASE_DIR": str(directory / "opt-ml"),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            **SETTINGS,
        },
    )
    try:
        served.wait_port()
        served.wait_ready()
        yield served
        assert "Traceback" not in served.log
    finally:
        served.terminate()


@pytest.fixture(scope="session")
def gateway(endpoint: ServeProcess) -> Iterator[str]:
    """SageMaker's runtime in front of it."""
    port = free_port()
    arguments = ["--container", endpoint.url, "--endpoint", ENDPOINT, "--port", str(port)]
    process = subprocess.Popen([BIN / "python", "-m", "local_sagemaker", *arguments], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    process.stdout.readline()  # it says when it listens
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="session")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The runtime of a local SageMaker, which hosts the endpoint: `neuron-endpoint local up` and boto3."""
    command, state = [BIN / "neuron-endpoint", "local"], ["--state", tmp_path_factory.mktemp("local") / "state"]
    up = [*command, "up", "--with-process", str(os.getpid()), *state]
    printed = subprocess.run(up, check=True, capture_output=True, text=True, timeout=120, cwd=ROOT).stdout
    exports = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())
    control = boto3.client(
        "sagemaker",
        endpoint_url=exports["AWS_ENDPOINT_URL_SAGEMAKER"],
        region_name=exports["AWS_DEFAULT_REGION"],
        aws_access_key_id=exports["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=exports["AWS_SECRET_ACCESS_KEY"],
    )
    environment = {**SETTINGS, **serve_process.ENGINE_ENVIRONMENT, "ENDPOINT_MODEL": str(WEIGHTS)}
    container = {"Image": "neuron-endpoint", "Environment": {**environment, "PYTHONPATH": str(ROOT)}}
    variant = {"VariantName": "all", "ModelName": "sample", "InitialInstanceCount": 1, "InstanceType": "ml.inf2.xlarge"}
    try:
        control.create_model(ModelName="sample", PrimaryContainer=container, ExecutionRoleArn=ROLE)
        control.create_endpoint_config(EndpointConfigName="sample", ProductionVariants=[variant])
        control.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="sample")
        control.get_waiter("endpoint_in_service").wait(
            EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 600}
        )
        yield exports["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"]
    finally:
        subprocess.run([*command, "down", *state], check=True, timeout=120, cwd=ROOT, stdout=subprocess.DEVNULL)


@pytest.fixture
def runtime_url(request: pytest.FixtureRequest) -> str:
    """Where SageMaker's runtime is: `gateway`, unless a module asks for `hosted` too (`asked.EVERY_SAGEMAKER`)."""
    url: str = request.getfixturevalue(getattr(request, "param", "gateway"))
    return url


@pytest.fixture(autouse=True)
def aws(runtime_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a user of the clients sets, and nothing of this machine's own."""
    settings = {
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": runtime_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
