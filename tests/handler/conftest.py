"""Fixtures that all tests of `handler` share. The helpers beside this file can be imported from every folder below."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handler.engine.event_loop import LoopThread
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectStore
from handler.storage.s3_objects import S3Objects
from tests.handler.loops import end_loop

NUMBERS = itertools.count()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread.start("test-loop")
    yield loop
    end_loop(loop)


@pytest.fixture
def bucket(s3: Any) -> str:
    """An empty bucket that no other test uses."""
    name = f"artifacts-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(params=["directory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An object store of each kind. S3 is moto's server, which supports conditional writes."""
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
