from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

# The gateway and the scripted container behind it are local_sagemaker's own test tools.
sys.path.append(str(Path(__file__).parents[1] / "local_sagemaker"))
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that no service but ours takes, and none of this machine's own."""
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def s3(moto_url: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
    return boto3.client("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of this test's own."""
    name = f"packages-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 4096)
    return folder
