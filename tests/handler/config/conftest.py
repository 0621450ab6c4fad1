"""A real S3 server on loopback, for what is read from S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def put_s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], str]:
    """Puts an object into the bucket `settings`, and gives its URI; boto3 finds the server by itself."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="settings")

    def put(key: str, body: bytes) -> str:
        client.put_object(Bucket="settings", Key=key, Body=body)
        return f"s3://settings/{key}"

    return put
