"""Deletes the resources of a deployment, found by name and tag, in the order that AWS requires, and nothing else.

No state is kept on this machine. So any machine with the permissions can delete, and the command can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from model_packaging.deployment.aws import Aws, unless_missing
from model_packaging.deployment.container_log import ContainerLog, Log, groups
from model_packaging.deployment.definition.autoscaling import FROM_ZERO, WAKE
from model_packaging.deployment.definition.resources import TAG, Resources
from model_packaging.deployment.watch import EndpointWatch, PollInterval, Tell, WatchedResource

NAMESPACE = "sagemaker"


# What scales: the first part of its id, and the dimension.
DIMENSIONS = {
    "endpoint": "sagemaker:variant:DesiredInstanceCount",
    "inference-component": "sagemaker:inference-component:DesiredCopyCount",
}


def as_lines(owned: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{kind} {name}" for kind, names in owned.items() for name in names]


class Removal:
    def __init__(self, aws: Aws, name: str) -> None:
        self._aws, self._name = aws, name

    def owned(self) -> dict[str, list[str]]:
        """Returns the names of every resource with the tag, by kind. A similar name alone does not count."""
        return {
            "alarm": [*self._alarms()],
            "scaling of": [*self._targets()],
            "inference component": [*self._listed("inference_components", "InferenceComponent")],
            "endpoint": [*self._listed("endpoints", "Endpoint")],
            "endpoint configuration": [*self._listed("endpoint_configs", "EndpointConfig")],
            "model": [*self._listed("models", "Model")],
        }

    def run(self, tell: Tell, pace: PollInterval | None = None, log: Log | None = None) -> list[str]:
        """Deletes the resources, waits until they are deleted, and returns them.

        :raises StillGoing: a deletion took longer than the time limit.
        :raises DeploymentFailed: a deletion failed.
        """
        sagemaker, there = self._aws.sagemaker, self.owned()
        watch = EndpointWatch(log or ContainerLog(self._aws.logs, groups(self._name)), tell, pace or PollInterval())
        for alarm in there["alarm"]:
            self._aws.cloudwatch.delete_alarms(AlarmNames=[alarm])
        for target in there["scaling of"]:
            self._end_scaling(target)
        for kind in ("inference component", "endpoint"):
            resources = [WatchedResource(sagemaker, kind.replace(" ", "_"), name) for name in there[kind]]
            for resource in resources:
                # SageMaker rejects the deletion of an endpoint that is being created or changed.
                if watch.settled(resource) is not None:
                    unless_missing(resource.delete)
            for resource in resources:
                watch.gone(resource)
        for kind, delete, member in (
            ("endpoint configuration", sagemaker.delete_endpoint_config, "EndpointConfigName"),
            ("model", sagemaker.delete_model, "ModelName"),
        ):
            for name in there[kind]:
                tell(f"{kind} {name}: deleting")
                unless_missing(delete, **{member: name})
        return as_lines(there)

    def remove_outdated(self, desired: Resources, tell: Tell) -> None:
        """Deletes the scaling and the alarms of earlier runs that are not desired any more."""
        scaling = desired.scaling
        for target in self._targets():
            if scaling is None or target != scaling.target["ResourceId"]:
                tell(f"scaling of {target}: deleting")
                self._end_scaling(target)
        wake = scaling.wake if scaling else None
        kept = {alarm["AlarmName"] for alarm in (*desired.alarms, *([wake] if wake else []))}
        for alarm in self._alarms():
            if alarm in kept:
                continue
            tell(f"alarm {alarm}: deleting")
            if scaling is not None and alarm == f"{self._name}-{WAKE}":
                where = {key: scaling.target[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
                policy = {**where, "PolicyName": f"{self._name}-{FROM_ZERO}"}
                unless_missing(self._aws.autoscaling.delete_scaling_policy, **policy)
            self._aws.cloudwatch.delete_alarms(AlarmNames=[alarm])

    def _end_scaling(self, target: str) -> None:
        """Deregisters a target, which deletes its policies and their alarms, too."""
        dimension = DIMENSIONS[target.partition("/")[0]]
        named = {"ServiceNamespace": NAMESPACE, "ResourceId": target, "ScalableDimension": dimension}
        unless_missing(self._aws.autoscaling.deregister_scalable_target, **named)

    def _listed(self, call: str, kind: str) -> Iterator[str]:
        sagemaker = self._aws.sagemaker
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

    def _targets(self) -> Iterator[str]:
        autoscaling = self._aws.autoscaling
        ids = (f"endpoint/{self._name}/variant/AllTraffic", f"inference-component/{self._name}")
        pages = autoscaling.get_paginator("describe_scalable_targets").paginate(ServiceNamespace=NAMESPACE)
        for target in (target for page in pages for target in page["ScalableTargets"] if target["ResourceId"] in ids):
            arn = target.get("ScalableTargetARN")
            tags = autoscaling.list_tags_for_resource(ResourceARN=arn)["Tags"] if arn else {}
            if tags.get(TAG) == self._name:
                yield target["ResourceId"]

    def _is_ours(self, tags: Any) -> bool:
        return {"Key": TAG, "Value": self._name} in tags
