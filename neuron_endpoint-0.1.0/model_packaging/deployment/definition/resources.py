"""Builds the parameters of every AWS call of a deployment. It sends nothing, so they can be compared and validated.

A model and an endpoint configuration cannot be changed after their creation, so their names end in a digest of their
content. The same request finds the existing ones; another request creates new ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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


def resources(wanted: DeploymentRequest) -> Resources:
    tags = tag_list({**wanted.tags, TAG: wanted.name})
    model = _named("ModelName", wanted.name, {**_model(wanted), "Tags": tags})
    config = _named("EndpointConfigName", wanted.name, {**_config(wanted, model["ModelName"]), "Tags": tags})
    chosen = {"EndpointName": wanted.name, "EndpointConfigName": config["EndpointConfigName"]}
    component = {**_component(wanted, model["ModelName"]), "Tags": tags} if wanted.component else None
    from model_packaging.deployment.definition.alarm_definitions import alarms

    return Resources(
        name=wanted.name,
        model=model,
        config=config,
        endpoint={**chosen, "Tags": tags},
        update={**chosen, **_rolling(wanted)},
        component=component,
        scaling=scaling_calls(wanted, VARIANT, TAG) if wanted.scaling else None,
        alarms=tuple({**alarm, "Tags": tags} for alarm in alarms(wanted, VARIANT)) if wanted.alarms else (),
    )


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _model(wanted: DeploymentRequest) -> Members:
    container: Members = {"Image": wanted.image}
    if wanted.environment:
        container["Environment"] = dict(sorted(wanted.environment.items()))
    if wanted.model:
        archive = wanted.model.endswith((".tar.gz", ".tgz"))
        container["ModelDataSource"] = {
            "S3DataSource": {
                "S3Uri": wanted.model if archive else f"{wanted.model.rstrip('/')}/",
                "S3DataType": "S3Object" if archive else "S3Prefix",
                "CompressionType": "Gzip" if archive else "None",
            }
        }
    return {"PrimaryContainer": container, "ExecutionRoleArn": wanted.role, **wanted.network.members()}


def _config(wanted: DeploymentRequest, model: str) -> Members:
    """Returns the endpoint configuration. Data capture is always off: it would store every prompt."""
    variant: Members = {
        "VariantName": VARIANT,
        "InstanceType": wanted.instance,
        "InitialInstanceCount": wanted.instances,
        "RoutingConfig": wanted.routing.members(),
    }
    if wanted.ami:
        variant["InferenceAmiVersion"] = wanted.ami
    if wanted.limits.volume:
        variant["VolumeSizeInGB"] = wanted.limits.volume
    members: Members = {"ProductionVariants": [variant]}
    if wanted.component:
        if wanted.scaling:
            variant["ManagedInstanceScaling"] = {
                "Status": "ENABLED",
                "MinInstanceCount": wanted.scaling.minimum,
                "MaxInstanceCount": wanted.scaling.maximum,
            }
        members |= {"ExecutionRoleArn": wanted.role, **wanted.network.members()}
    else:
        variant |= {"ModelName": model, "InitialVariantWeight": 1.0, **_timeouts(wanted)}
    if wanted.kms_key:
        members["KmsKeyId"] = wanted.kms_key
    if wanted.async_output:
        # Without a failure path, a waiting client would not learn that its request failed.
        output = {"S3OutputPath": wanted.async_output, "S3FailurePath": wanted.async_output}
        members["AsyncInferenceConfig"] = {"OutputConfig": output}
        if wanted.async_concurrency is not None:
            slots = {"MaxConcurrentInvocationsPerInstance": wanted.async_concurrency}
            members["AsyncInferenceConfig"]["ClientConfig"] = slots
    return members


def _timeouts(wanted: DeploymentRequest) -> Members:
    return {
        "ModelDataDownloadTimeoutInSeconds": wanted.limits.download,
        "ContainerStartupHealthCheckTimeoutInSeconds": wanted.limits.startup,
    }


def _component(wanted: DeploymentRequest, model: str) -> Members:
    """Returns the component. A copy uses all chips of an instance. Half of the memory is reserved; it may use more.

    That an accelerator device is a chip, and not a core, has no source.
    """
    instance = find(wanted.instance)
    return {
        "InferenceComponentName": wanted.name,
        "EndpointName": wanted.name,
        "VariantName": VARIANT,
        "Specification": {
            "ModelName": model,
            "StartupParameters": _timeouts(wanted),
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": float(instance.chips),
                "MinMemoryRequiredInMb": instance.host_gib * 1024 // 2,
            },
        },
        "RuntimeConfig": {"CopyCount": wanted.instances},
    }


def _rolling(wanted: DeploymentRequest) -> Members:
    """Returns a rolling update with rollback on alarms, for two or more instances.

    Capacity for a second fleet is rarely available. With one instance, SageMaker's default is used: the new instance
    starts beside the old one.
    """
    # With auto scaling, the configuration does not set the number of instances.
    kept: Members = {"RetainAllVariantProperties": True} if wanted.scaling and not wanted.component else {}
    if wanted.component or wanted.instances < 2:
        return kept
    policy: Members = {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1},
            "WaitIntervalInSeconds": 60,
        }
    }
    if wanted.alarms:
        policy["AutoRollbackConfiguration"] = {"Alarms": [{"AlarmName": f"{wanted.name}-errors"}]}
    return {**kept, "DeploymentConfig": policy}


def _named(member: str, name: str, members: Members) -> Members:
    """Adds the digest to a name. Tags are not part of the digest."""
    content = {key: value for key, value in members.items() if key != "Tags"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return {member: f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", **members}
