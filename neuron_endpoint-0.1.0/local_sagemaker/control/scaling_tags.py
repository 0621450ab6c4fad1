"""The tags of scalable targets. They are a map; tags of SageMaker resources are a list."""

from __future__ import annotations

from collections.abc import Mapping

from local_sagemaker.control.control_errors import ResourceNotFoundException, TooManyTagsException
from local_sagemaker.control.registry import TARGET, JsonDocument, Registry

MOST = 50


class ScalingTags:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def add(self, arn: str, tags: Mapping[str, str]) -> None:
        """:raises TooManyTagsException: a target would have more than 50."""
        kept = self._registry.tags(arn)
        if len(kept.keys() | tags.keys()) > MOST:
            raise TooManyTagsException(f"A scalable target has at most {MOST} tags.")
        kept.update(tags)

    def tag(self, params: JsonDocument) -> None:
        """:raises ResourceNotFoundException: the ARN names no target."""
        with self._registry.lock:
            self._check(params["ResourceARN"])
            self.add(params["ResourceARN"], params["Tags"])
            self._registry.save()

    def list(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            self._check(params["ResourceARN"])
            return {"Tags": dict(self._registry.tags(params["ResourceARN"]))}

    def untag(self, params: JsonDocument) -> None:
        with self._registry.lock:
            self._check(params["ResourceARN"])
            for key in params["TagKeys"]:
                self._registry.tags(params["ResourceARN"]).pop(key, None)
            self._registry.save()

    def _check(self, arn: str) -> None:
        if all(target["ScalableTargetARN"] != arn for target in self._registry.of(TARGET).values()):
            raise ResourceNotFoundException(f"No scalable target has the ARN {arn}.")
