"""One engine start for the session: the sample model, read from a real S3 server, behind `serve` and a gateway."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config

import sample_model
from tests.aws_keys import KEYS, VARIABLES
from tests.endpoint.serve_process import ServeProcess
from tests.local_sagemaker.gateway_process import GatewayProcess
from tests.otlp_receiver import Receiver, receiving

CREDENTIALS = {**VARIABLES, "AWS_EC2_METADATA_DISABLED": "true"}
MODEL_URI = "s3://models/sample/v1"


@pytest.fixture(scope="session")
def s3_endpoint(s3_url: str) -> str:
    """An S3 server on loopback with the sample model in it."""
    client = boto3.client("s3", endpoint_url=s3_url, **KEYS)
    client.create_bucket(Bucket="models")
    for file in sample_model.path().iterdir():
        client.upload_file(str(file), "models", f"sample/v1/{file.name}")
    return s3_url


@pytest.fixture(scope="session")
def otlp() -> Iterator[Receiver]:
    """Where the endpoint's traces go, and vLLM's own where its version has the exporter that it asks for."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def endpoint(s3_endpoint: str, otlp: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """`serve`, ready, its model from S3."""
    directory = tmp_path_factory.mktemp("endpoint")
    with ServeProcess(
        directory,
        {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": s3_endpoint,
            "ENDPOINT_MODEL": MODEL_URI,
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "SM_VLLM_SERVED_MODEL_NAME": "sample",
            "OTEL_EXPORTER_OTLP_ENDPOINT": otlp.url,
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",  # requests that ask for it
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "SM_VLLM_OTLP_TRACES_ENDPOINT": f"{otlp.url}/v1/traces",
            "ENDPOINT_ENABLE_SESSIONS": "true",
            "ENDPOINT_BATCH_STORE": "s3://models/batches",
            "SM_VLLM_TOOL_CALL_PARSER": "hermes",
            "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true",
            # Else a grammar for JSON allows white space anywhere, and so small a model likes it.
            "SM_VLLM_STRUCTURED_OUTPUTS_CONFIG": '{"disable_any_whitespace": true}',
        },
    ).serving() as served:
        yield served


@pytest.fixture(scope="session")
def gateway(endpoint: ServeProcess) -> Iterator[str]:
    """`python -m local_sagemaker` in front of the endpoint: what boto3 speaks to."""
    gateway = GatewayProcess(endpoint.url)
    yield gateway.url
    assert gateway.stop() == 0


@pytest.fixture
def runtime(gateway: str) -> object:
    """A plain boto3 client of SageMaker's runtime."""
    return boto3.client("sagemaker-runtime", endpoint_url=gateway, config=Config(retries={"max_attempts": 0}), **KEYS)
