"""How many requests of an asynchronous endpoint run at a time, as its configuration says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask

from local_sagemaker.gateway.asynchronous import Asynchronous
from local_sagemaker.gateway.container_connection import RuntimeLimits
from local_sagemaker.hosting.instances.s3_access import ObjectError
from tests.handler.waiting import WITHIN, eventually

OUTPUT = {"S3OutputPath": "s3://models/out", "S3FailurePath": "s3://models/failed"}


class Objects:
    """Inputs that are read until `release`. It counts those that are being read."""

    def __init__(self) -> None:
        self.reading = 0
        self.release = threading.Event()
        self._lock = threading.Lock()

    def read(self, *_: object) -> bytes:
        with self._lock:
            self.reading += 1
        self.release.wait(WITHIN)
        raise ObjectError("the test is over")

    def write(self, *_: object) -> None:
        """Takes the object that says why a request failed."""


def plan(per_instance: int, instances: int) -> dict[str, Any]:
    client = {"MaxConcurrentInvocationsPerInstance": per_instance}
    return {
        "AsyncInferenceConfig": {"ClientConfig": client, "OutputConfig": OUTPUT},
        "Variants": [{"Count": instances}],
    }


@pytest.fixture
def objects() -> Iterator[Objects]:
    objects = Objects()
    yield objects
    objects.release.set()


@pytest.mark.parametrize("changed", [plan(4, 1), plan(1, 4)], ids=["per instance", "instances"])
def test_an_updated_concurrency_counts(objects: Objects, changed: dict[str, Any]) -> None:
    host = Mock(objects=objects)
    host.settings.timing.scaled = float
    queue, app = Asynchronous(host, Mock(), RuntimeLimits()), Flask(__name__)

    def accept(count: int) -> None:
        for _ in range(count):
            with app.test_request_context(headers={"X-Amzn-SageMaker-InputLocation": "s3://models/in"}, method="POST"):
                assert json.loads(queue.invoke("queue").data)["InferenceId"]

    host.find.return_value.current.plan = plan(1, 1)
    accept(1)
    host.find.return_value.current.plan = changed
    accept(4)
    eventually(lambda: objects.reading == 5)
