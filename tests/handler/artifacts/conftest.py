"""Stores for the tests: a directory, and S3 as moto's server speaks it (with conditional writes)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from handler.artifacts.directory_objects import DirectoryObjects
from handler.artifacts.object_store import ObjectStore
from handler.artifacts.s3_objects import S3Objects

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
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


@pytest.fixture
def s3(s3_url: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server that our code finds, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    return boto3.client("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket of this test's own."""
    name = f"artifacts-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Each kind of place; what holds for one holds for the other."""
    if request.param == "directory":
        return DirectoryObjects(tmp_path / "store")
    return S3Objects(request.getfixturevalue("bucket"), "some/prefix")


@pytest.fixture
def again(objects: ObjectStore) -> Callable[[], ObjectStore]:
    """Makes another `ObjectStore` over the same place, as another process would."""

    def make() -> ObjectStore:
        if isinstance(objects, DirectoryObjects):
            return DirectoryObjects(objects.root)
        assert isinstance(objects, S3Objects)
        return S3Objects(objects.bucket, objects.prefix)

    return make
