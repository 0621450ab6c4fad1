"""Builds the parameters of every AWS call of a deployment. It sends nothing, so they can be compared and validated.

A model and an endpoint configuration cannot be changed after their creation, so their names end in a digest of their
content. The same request finds the existing ones; another request creates new ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from handler.neuron.hardware.instance_catalogue import find
from model_packaging.deployment.definition.autoscaling import ScalingCalls, scaling_calls
from model_packaging.deployment.definition.request import DeploymentRequest

VARIANT = "AllTraffic"
TAG = "neuron-endpoint:deployment"
Members = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resources:
    """The parameters of all calls. `component` and `scaling` are None if they are not requested."""

    name: str
    model: Members
    config: Members
    endpoint: Members
    update: Members
    component: Members | None
    scaling: ScalingCalls | None
    alarms: tuple[Members, ...]


def resources(request: DeploymentRequest) -> Resources:
    tags = tag_list({**request.tags, TAG: request.name})
    model = _named("ModelName", request.name, {**_model(request), "Tags": tags})
    config = _named("EndpointConfigName", request.name, {**_config(request, model["ModelName"]), "Tags": tags})
    chosen = {"EndpointName": request.name, "EndpointConfigName": config["EndpointConfigName"]}
    component = {**_component(request, model["ModelName"]), "Tags": tags} if request.component else None
    return Resources(
        name=request.name,
        model=model,
        config=config,
        endpoint={**chosen, "Tags": tags},
        update={**chosen, **_rolling(request)},
        component=component,
        scaling=scaling_calls(request, VARIANT, TAG) if request.scaling else None,
        alarms=_alarms(request, tags) if request.alarms else (),
    )


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _model(request: DeploymentRequest) -> Members:
    container: Members = {"Image": request.image}
    if request.environment:
        container["Environment"] = dict(sorted(request.environment.items()))
    if request.model and request.model.endswith(".tar.gz"):
        container["ModelDataUrl"] = request.model  # CreateTransformJob refuses a model with ModelDataSource
    elif request.model:
        archive = request.model.endswith(".tgz")
        container["ModelDataSource"] = {
            "S3DataSource": {
                "S3Uri": request.model if archive else f"{request.model.rstrip('/')}/",
                "S3DataType": "S3Object" if archive else "S3Prefix",
                "CompressionType": "Gzip" if archive else "None",
            }
        }
    return {"PrimaryContainer": container, "ExecutionRoleArn": request.role, **request.network.members()}


def _config(request: DeploymentRequest, model: str) -> Members:
    """Returns the endpoint configuration. Data capture is always off: it would store every prompt."""
    variant: Members = {
        "VariantName": VARIANT,
        "InstanceType": request.instance,
        "InitialInstanceCount": _initial(request),
        "RoutingConfig": request.routing.members(),
    }
    if request.ami:
        variant["InferenceAmiVersion"] = request.ami
    if request.limits.volume:
        variant["VolumeSizeInGB"] = request.limits.volume
    members: Members = {"ProductionVariants": [variant]}
    if request.component:
        if request.scaling:
            variant["ManagedInstanceScaling"] = {
                "Status": "ENABLED",
                "MinInstanceCount": request.scaling.minimum,
                "MaxInstanceCount": request.scaling.maximum,
            }
        members |= {"ExecutionRoleArn": request.role, **request.network.members()}
    else:
        variant |= {"ModelName": model, "InitialVariantWeight": 1.0, **_timeouts(request)}
    if request.kms_key:
        members["KmsKeyId"] = request.kms_key
    if request.async_output:
        # Without a failure path, a waiting client would not learn that its request failed.
        output = {"S3OutputPath": request.async_output, "S3FailurePath": request.async_output}
        members["AsyncInferenceConfig"] = {"OutputConfig": output}
        if request.async_concurrency is not None:
            slots = {"MaxConcurrentInvocationsPerInstance": request.async_concurrency}
            members["AsyncInferenceConfig"]["ClientConfig"] = slots
    return members


def _initial(request: DeploymentRequest) -> int:
    """Returns with how many instances or copies it starts: not with fewer than scaling keeps."""
    return max(request.instances, request.scaling.minimum) if request.scaling else request.instances


def _timeouts(request: DeploymentRequest) -> Members:
    return {
        "ModelDataDownloadTimeoutInSeconds": request.limits.download,
        "ContainerStartupHealthCheckTimeoutInSeconds": request.limits.startup,
    }


def _component(request: DeploymentRequest, model: str) -> Members:
    """Returns the component. A copy uses all chips of an instance. Half of the memory is reserved; it may use more.

    That an accelerator device is a chip, and not a core, has no source.
    """
    instance = find(request.instance)
    return {
        "InferenceComponentName": request.name,
        "EndpointName": request.name,
        "VariantName": VARIANT,
        "Specification": {
            "ModelName": model,
            "StartupParameters": _timeouts(request),
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": float(instance.chips),
                "MinMemoryRequiredInMb": instance.host_gib * 1024 // 2,
            },
        },
        "RuntimeConfig": {"CopyCount": _initial(request)},
    }


def _rolling(request: DeploymentRequest) -> Members:
    # With auto scaling, the configuration does not set the number of instances.
    kept: Members = {"RetainAllVariantProperties": True} if request.scaling and not request.component else {}
    if request.component:
        return kept
    bounds = (request.scaling.minimum, request.scaling.maximum) if request.scaling else (request.instances,) * 2
    return {**kept, **rolling(request.name, *bounds, alarms=request.alarms)}


def rolling(name: str, fewest: int, most: int, *, alarms: bool, unit: str = "INSTANCE_COUNT") -> Members:
    """Returns a rolling update with rollback on alarms, for a number of running instances within the bounds.

    :param unit: COPY_COUNT for the copies of a component.

    Capacity for a second fleet is rarely available. With one instance, SageMaker's default is used: the new instance
    starts beside the old one.
    """
    # SageMaker takes 5% to 50% of them (API reference, RollingUpdatePolicy, InferenceComponentRollingUpdatePolicy).
    batch = max(1, ceil(most / 20))
    if batch > fewest // 2:
        return {}
    size = {"Type": unit, "Value": batch}
    policy: Members = {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 60}}
    if unit == "COPY_COUNT":  # else a rollback starts all old copies at once
        policy["RollingUpdatePolicy"]["RollbackMaximumBatchSize"] = size
    if alarms:
        policy["AutoRollbackConfiguration"] = {"Alarms": [{"AlarmName": f"{name}-errors"}]}
    return {"DeploymentConfig": policy}


def _alarms(request: DeploymentRequest, tags: list[dict[str, str]]) -> tuple[Members, ...]:
    """Returns the alarms `<name>-errors` (the endpoint replies with 5xx) and `<name>-disk` (a disk is filling up)."""
    by_variant = [{"Name": "EndpointName", "Value": request.name}, {"Name": "VariantName", "Value": VARIANT}]
    by_component = [{"Name": "InferenceComponentName", "Value": request.name}]
    action = {"AlarmActions": [request.alarm_topic]} if request.alarm_topic else {}
    above = {"ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching"}
    common: Members = {**above, **action, "Tags": tags}
    errors: Members = {
        "AlarmName": f"{request.name}-errors",
        "AlarmDescription": "More than 5 answers with 5xx in a minute, three times in five minutes.",
        "Namespace": "AWS/SageMaker",
        "MetricName": "Invocation5XXErrors",
        "Dimensions": by_component if request.component else by_variant,
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 5,
        "DatapointsToAlarm": 3,
        "Threshold": 5.0,
        **common,
    }
    disk: Members = {
        "AlarmName": f"{request.name}-disk",
        "AlarmDescription": "An instance's disk is more than 90% full.",
        "Namespace": "/aws/sagemaker/Endpoints",
        "MetricName": "DiskUtilization",
        "Dimensions": by_variant,
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "Threshold": 90.0,
        **common,
    }
    return errors, disk


def _named(member: str, name: str, members: Members) -> Members:
    """Adds the digest to a name. Tags are not part of the digest."""
    content = {key: value for key, value in members.items() if key != "Tags"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return {member: f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", **members}
