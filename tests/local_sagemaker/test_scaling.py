"""Application Auto Scaling: targets and policies of variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_service import Cloud
from test_endpoint_start import started

DIMENSION = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
TARGET = {**DIMENSION, "ResourceId": "endpoint/scaling/variant/AllTraffic"}
TRACKING = {
    "TargetValue": 70.0,
    "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
}
POLICY = {**TARGET, "PolicyName": "p", "PolicyType": "TargetTrackingScaling"}


@pytest.fixture(scope="module")
def scaling(cloud: Cloud) -> Iterator[Any]:
    started(cloud, "scaling")
    yield cloud.service.client("application-autoscaling")
    cloud.delete("scaling")


def test_a_target_is_registered_changed_and_deregistered(scaling: Any) -> None:
    arn = scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=3, Tags={"a": "b"})["ScalableTargetARN"]
    scaling.tag_resource(ResourceARN=arn, Tags={"c": "d", "e": "f"})
    scaling.untag_resource(ResourceARN=arn, TagKeys=["e", "never"])
    assert scaling.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"a": "b", "c": "d"}
    assert scaling.register_scalable_target(**TARGET, MaxCapacity=4)["ScalableTargetARN"] == arn
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"], target["ScalableTargetARN"]) == (1, 4, arn)
    assert scaling.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"] == []
    scaling.deregister_scalable_target(**TARGET)
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []


def test_a_policy_is_put_described_and_deleted(scaling: Any) -> None:
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=3)
    arn = scaling.put_scaling_policy(**POLICY, TargetTrackingScalingPolicyConfiguration=TRACKING)["PolicyARN"]
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", PolicyNames=["p"])["ScalingPolicies"]
    assert policy["PolicyARN"] == arn
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 70.0
    scaling.delete_scaling_policy(**TARGET, PolicyName="p")
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []
    scaling.put_scaling_policy(**POLICY, TargetTrackingScalingPolicyConfiguration=TRACKING)
    scaling.deregister_scalable_target(**TARGET)
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"ResourceId": "endpoint/never/variant/AllTraffic"}, "does not exist"),
        ({"ResourceId": "endpoint/scaling/variant/never"}, "does not exist"),
        ({"ResourceId": "scaling"}, "does not fit"),
        ({"ServiceNamespace": "nonsense"}, "enum value set"),
        ({"ServiceNamespace": "ecs", "ScalableDimension": "ecs:service:DesiredCount"}, "is not on this machine"),
        ({"MinCapacity": 4}, "cannot be less than minimum"),
        ({"MinCapacity": None}, "must be given for a new scalable target"),
    ],
)
def test_a_target_is_checked(scaling: Any, members: dict[str, Any], said: str) -> None:
    asked = {**TARGET, "MinCapacity": 1, "MaxCapacity": 3, **members}
    with pytest.raises(ClientError, match=said) as caught:
        scaling.register_scalable_target(**{key: value for key, value in asked.items() if value is not None})
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_what_is_not_registered_is_not_found(scaling: Any) -> None:
    for call, asked in (
        (scaling.deregister_scalable_target, TARGET),
        (scaling.put_scaling_policy, {**POLICY, "TargetTrackingScalingPolicyConfiguration": TRACKING}),
        (scaling.delete_scaling_policy, {**TARGET, "PolicyName": "p"}),
    ):
        with pytest.raises(ClientError) as caught:
            call(**asked)
        assert caught.value.response["Error"]["Code"] == "ObjectNotFoundException"


def test_a_policy_and_its_configuration_go_together(scaling: Any) -> None:
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=3)
    for asked in (
        POLICY,
        {**POLICY, "PolicyType": "StepScaling", "TargetTrackingScalingPolicyConfiguration": TRACKING},
    ):
        with pytest.raises(ClientError, match="needs") as caught:
            scaling.put_scaling_policy(**asked)
        assert caught.value.response["Error"]["Code"] == "ValidationException"
    for call in (scaling.describe_scalable_targets, scaling.describe_scaling_policies):
        with pytest.raises(ClientError) as caught:
            call(ServiceNamespace="sagemaker", NextToken="nonsense")
        assert caught.value.response["Error"]["Code"] == "InvalidNextTokenException"
    scaling.deregister_scalable_target(**TARGET)


def test_an_unknown_operation_is_said_to_be_one(scaling: Any) -> None:
    with pytest.raises(ClientError) as caught:
        scaling.describe_scaling_activities(ServiceNamespace="sagemaker")
    assert caught.value.response["Error"]["Code"] == "UnknownOperationException"
