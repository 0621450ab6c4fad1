"""Deletes the resources of a deployment, found by name and tag, in the order that AWS requires, and nothing else.

No state is kept on this machine. So any machine with the permissions can delete, and the command can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from model_packaging.deployment.aws import Aws, unless_missing
from model_packaging.deployment.container_log import ContainerLog, Log, groups
from model_packaging.deployment.definition.resources import TAG
from model_packaging.deployment.watch import EndpointWatch, PollInterval, Tell, WatchedResource

NAMESPACE = "sagemaker"


@dataclass(frozen=True, slots=True)
class Owned:
    """The resources of a deployment, by name. `targets` are resource id and dimension."""

    alarms: list[str] = field(default_factory=list)
    targets: list[tuple[str, str]] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        named = (
            ("alarm", self.alarms),
            ("scaling of", [name for name, _ in self.targets]),
            ("inference component", self.components),
            ("endpoint", self.endpoints),
            ("endpoint configuration", self.configs),
            ("model", self.models),
        )
        return [f"{kind} {name}" for kind, names in named for name in names]


class Removal:
    def __init__(self, aws: Aws, name: str) -> None:
        self._aws, self._name = aws, name

    def owned(self) -> Owned:
        """Returns every resource with the tag. A similar name alone does not count."""
        sagemaker = self._aws.sagemaker
        return Owned(
            endpoints=[*self._listed(sagemaker, "endpoints", "Endpoint")],
            configs=[*self._listed(sagemaker, "endpoint_configs", "EndpointConfig")],
            models=[*self._listed(sagemaker, "models", "Model")],
            components=[*self._listed(sagemaker, "inference_components", "InferenceComponent")],
            alarms=[*self._alarms()],
            targets=[*self._targets()],
        )

    def run(self, tell: Tell, pace: PollInterval | None = None, log: Log | None = None) -> list[str]:
        """Deletes the resources, waits until they are deleted, and returns them.

        :raises StillGoing: a deletion took longer than the time limit.
        """
        sagemaker, there = self._aws.sagemaker, self.owned()
        watch = EndpointWatch(log or ContainerLog(self._aws.logs, groups(self._name)), tell, pace or PollInterval())
        for alarm in there.alarms:
            self._aws.cloudwatch.delete_alarms(AlarmNames=[alarm])
        for target, dimension in there.targets:  # this deletes its policies and their alarms, too
            named = {"ServiceNamespace": NAMESPACE, "ResourceId": target, "ScalableDimension": dimension}
            unless_missing(self._aws.autoscaling.deregister_scalable_target, **named)
        for call, names in (("inference_component", there.components), ("endpoint", there.endpoints)):
            resources = [WatchedResource(sagemaker, call, name) for name in names]
            for resource in resources:
                # SageMaker rejects the deletion of an endpoint that is being created or changed.
                if watch.settled(resource) is not None:
                    unless_missing(resource.delete)
            for resource in resources:
                watch.settled(resource)
        for config in there.configs:
            tell(f"endpoint configuration {config}: deleting")
            unless_missing(sagemaker.delete_endpoint_config, EndpointConfigName=config)
        for model in there.models:
            tell(f"model {model}: deleting")
            unless_missing(sagemaker.delete_model, ModelName=model)
        return there.all()

    def _listed(self, sagemaker: Any, call: str, kind: str) -> Iterator[str]:
        for page in sagemaker.get_paginator(f"list_{call}").paginate(NameContains=self._name):
            for entry in page[f"{kind}s"]:
                name = entry[f"{kind}Name"]
                if name != self._name and not name.startswith(f"{self._name}-"):
                    continue
                tags = unless_missing(sagemaker.list_tags, ResourceArn=entry[f"{kind}Arn"])
                if tags is not None and self._is_ours(tags["Tags"]):
                    yield name

    def _alarms(self) -> Iterator[str]:
        cloudwatch = self._aws.cloudwatch
        for page in cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=f"{self._name}-"):
            for alarm in page["MetricAlarms"]:
                if self._is_ours(cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"]):
                    yield alarm["AlarmName"]

    def _targets(self) -> Iterator[tuple[str, str]]:
        autoscaling = self._aws.autoscaling
        ids = (f"endpoint/{self._name}/variant/AllTraffic", f"inference-component/{self._name}")
        pages = autoscaling.get_paginator("describe_scalable_targets").paginate(ServiceNamespace=NAMESPACE)
        for target in (target for page in pages for target in page["ScalableTargets"] if target["ResourceId"] in ids):
            arn = target.get("ScalableTargetARN")
            tags = autoscaling.list_tags_for_resource(ResourceARN=arn)["Tags"] if arn else {}
            if tags.get(TAG) == self._name:
                yield target["ResourceId"], target["ScalableDimension"]

    def _is_ours(self, tags: Any) -> bool:
        return {"Key": TAG, "Value": self._name} in tags
