"""Compile once, restore everywhere: `serve` over an artifact store in S3, on real engines."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

import sample_model
from sample_model.facts import by_name
from tests.aws_keys import KEYS
from tests.endpoint.neuron_fleet import CREDENTIALS, answered
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine


def serve(directory: Path, s3_endpoint: str, store: str, **environment: str) -> ServeProcess:
    """A machine of its own: nothing but the store is shared. The model lies where SageMaker puts it."""
    directory.mkdir()
    (directory / "model").symlink_to(sample_model.path())
    return ServeProcess(
        directory,
        {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": s3_endpoint,
            "SAGEMAKER_BASE_DIR": str(directory),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "ENDPOINT_ARTIFACT_STORE": store,
            "ENDPOINT_ENGINE_RESTARTS": "0",
            **environment,
        },
    )


def bucket(s3_endpoint: str, name: str) -> str:
    boto3.client("s3", endpoint_url=s3_endpoint, **KEYS).create_bucket(Bucket=name)
    return f"s3://{name}/store"


def test_a_cpu_compile_is_published_restored_and_missed_by_name(s3_endpoint: str, tmp_path: Path) -> None:
    store = bucket(s3_endpoint, "cpu-artifacts")
    compiling = {"SM_VLLM_ENFORCE_EAGER": "false"}
    first = serve(tmp_path / "one", s3_endpoint, store, **compiling)
    assert answered(first) == by_name("ping").answer
    assert "compile: start engine" in first.log
    assert "artifact_published" in first.log

    second = serve(tmp_path / "two", s3_endpoint, store, **compiling)
    assert answered(second) == by_name("ping").answer
    assert "artifact_restored" in second.log
    assert "restore artifacts" in second.log
    assert "compile: " not in second.log

    third = serve(tmp_path / "three", s3_endpoint, store, ENDPOINT_ON_MISS="fail", SM_VLLM_MAX_MODEL_LEN="512")
    assert third.process.wait(60) == 3
    assert "max_model_len 1024 -> 512" in third.log, third.log
