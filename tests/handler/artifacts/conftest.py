"""Stores for the tests: a directory, and S3 as moto's server speaks it (with conditional writes)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handler.storage.directory_objects import DirectoryObjects
from handler.storage.object_store import ObjectStore
from handler.storage.s3_objects import S3Objects

NUMBERS = itertools.count()


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
