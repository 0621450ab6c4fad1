"""Builds the calls that make an endpoint scale by requests in flight per copy, down to zero where that is possible.

Target tracking cannot scale out from zero, because no copy reports a metric. An alarm on rejected requests does that
("Scale an endpoint to zero instances", SageMaker developer guide).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model_packaging.deployment.definition.request import DeploymentRequest

Members = dict[str, Any]
# How the names of the policy and of the alarm that start the first copy end.
FROM_ZERO, WAKE = "from-zero", "wake"
# A Neuron instance needs minutes to start. So scale out at once, and scale in after ten minutes without need.
SCALE_IN_COOLDOWN, SCALE_OUT_COOLDOWN = 600, 60


@dataclass(frozen=True, slots=True)
class ScalingCalls:
    """The parameters of the scaling calls.

    :param wake: the alarm for scaling out from zero. Its action is the policy `from_zero`, whose ARN is known later.
    """

    target: Members
    policy: Members
    from_zero: Members | None
    wake: Members | None


def place(request: DeploymentRequest, variant: str) -> Members:
    """Returns the resource that scales: the component's copies, or the variant's instances."""
    resource, dimension = f"endpoint/{request.name}/variant/{variant}", "variant:DesiredInstanceCount"
    if request.component:
        resource, dimension = f"inference-component/{request.name}", "inference-component:DesiredCopyCount"
    return {"ServiceNamespace": "sagemaker", "ResourceId": resource, "ScalableDimension": f"sagemaker:{dimension}"}


def scaling_calls(request: DeploymentRequest, variant: str, tag: str) -> ScalingCalls:
    scaling = request.scaling
    assert scaling is not None
    where = place(request, variant)
    tags = dict(sorted({**request.tags, tag: request.name}.items()))
    target = {**where, "MinCapacity": scaling.minimum, "MaxCapacity": scaling.maximum, "Tags": tags}
    tracking: Members = {
        "TargetValue": scaling.concurrency,
        "ScaleInCooldown": SCALE_IN_COOLDOWN,
        "ScaleOutCooldown": SCALE_OUT_COOLDOWN,
        **_metric(request),
    }
    policy = {
        **where,
        "PolicyName": f"{request.name}-concurrency",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": tracking,
    }
    if scaling.minimum:
        return ScalingCalls(target, policy, None, None)
    from_zero = {
        **where,
        "PolicyName": f"{request.name}-{FROM_ZERO}",
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": SCALE_OUT_COOLDOWN,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
        },
    }
    return ScalingCalls(target, policy, from_zero, _wake(request))


def _metric(request: DeploymentRequest) -> Members:
    if request.async_output:  # the metric that AWS's guide to asynchronous inference scales by
        return {
            "CustomizedMetricSpecification": {
                "MetricName": "ApproximateBacklogSizePerInstance",
                "Namespace": "AWS/SageMaker",
                "Dimensions": [{"Name": "EndpointName", "Value": request.name}],
                "Statistic": "Average",
            }
        }
    component = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    variant = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    return {"PredefinedMetricSpecification": {"PredefinedMetricType": component if request.component else variant}}


def _wake(request: DeploymentRequest) -> Members:
    refused = ("NoCapacityInvocationFailures", "InferenceComponentName")
    queued = ("HasBacklogWithoutCapacity", "EndpointName")
    metric, dimension = queued if request.async_output else refused
    return {
        "AlarmName": f"{request.name}-{WAKE}",
        "AlarmDescription": "Requests arrived while there was no copy: start one.",
        "Namespace": "AWS/SageMaker",
        "MetricName": metric,
        "Dimensions": [{"Name": dimension, "Value": request.name}],
        "Statistic": "Maximum",
        "Period": 60 if request.async_output else 30,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "missing",
    }
