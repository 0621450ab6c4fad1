"""Stores the resources of the control plane as JSON documents, by kind and name."""

from __future__ import annotations

import threading
import time
from typing import Any

from local_sagemaker.control.control_errors import ValidationException

JsonDocument = dict[str, Any]

MODEL = "model"
CONFIG = "endpoint-config"
ENDPOINT = "endpoint"
COMPONENT = "inference-component"
TRANSFORM = "transform-job"
# As error messages name the kinds.
KIND_NAMES = {MODEL: MODEL, CONFIG: "endpoint configuration", ENDPOINT: ENDPOINT, COMPONENT: "inference component"}


class Registry:
    """The resources of the control plane. Hold ``lock`` to read and then write."""

    def __init__(self, region: str = "us-east-1", account: str = "123456789012") -> None:
        self.lock = threading.RLock()
        self.region = region
        self.account = account
        self._kinds: dict[str, dict[str, JsonDocument]] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def of(self, kind: str) -> dict[str, JsonDocument]:
        return self._kinds.setdefault(kind, {})

    def get(self, kind: str, name: str) -> JsonDocument:
        """Returns a resource.

        :raises ValidationException: there is none. SageMaker answers so, not with ResourceNotFound.
        """
        found = self.of(kind).get(name)
        if found is None:
            raise self.missing(kind, name)
        return found

    def missing(self, kind: str, name: str) -> ValidationException:
        return ValidationException(f'Could not find {KIND_NAMES[kind]} "{self.arn(kind, name)}".')

    def tags(self, arn: str) -> dict[str, str]:
        return self._tags.setdefault(arn, {})

    def add(self, kind: str, name: str, document: JsonDocument) -> None:
        tags = document.pop("Tags", None) or []
        self.of(kind)[name] = document
        self._tags[self.arn(kind, name)] = {tag["Key"]: tag["Value"] for tag in tags}

    def remove(self, kind: str, name: str) -> None:
        self.of(kind).pop(name, None)
        self._tags.pop(self.arn(kind, name), None)

    def arn(self, kind: str, name: str) -> str:
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{kind}/{name}"

    def owner(self, arn: str) -> JsonDocument | None:
        """Returns the resource with an ARN."""
        prefix = f"arn:aws:sagemaker:{self.region}:{self.account}:"
        kind, _, name = arn.removeprefix(prefix).partition("/")
        return self.of(kind).get(name) if arn.startswith(prefix) else None


def now() -> float:
    """Returns seconds since the epoch, in the form that the JSON protocol uses."""
    return round(time.time(), 3)
