"""The same deployment against moto's SageMaker and CloudWatch: a second opinion on the calls.

moto 5.2 knows no inference components and no tags of scalable targets; those have the service model alone.
"""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from model_packaging.deployment.apply import Application
from model_packaging.deployment.aws import Aws
from model_packaging.deployment.definition.limits import InstanceLimits
from model_packaging.deployment.definition.request import DeploymentRequest
from model_packaging.deployment.definition.resources import resources
from model_packaging.deployment.removal import Removal
from model_packaging.deployment.watch import PollInterval

PACE = PollInterval(poll=0, sleep=lambda seconds: None)


@pytest.mark.slow
def test_made_found_again_and_gone(s3: Any) -> None:
    wanted = DeploymentRequest(
        name="chat",
        image="123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1",
        role="arn:aws:iam::123456789012:role/endpoint",
        instance="ml.inf1.2xlarge",  # the newest with Neuron cores that moto knows
        limits=InstanceLimits(600, 1800, 128),
        model="s3://bucket/models/one",
    )
    aws = Aws()
    told: list[str] = []
    for _ in range(2):
        Application(aws, resources(wanted), told.append, PACE).run()
    assert sum("creating" in line for line in told) == 5
    sagemaker = boto3.client("sagemaker")
    assert sagemaker.describe_endpoint(EndpointName="chat")["EndpointStatus"] == "InService"
    removal = Removal(aws, "chat")
    removal._aws = _without_components(aws)
    assert len(removal.run(told.append, PACE)) == 5
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert sagemaker.list_models()["Models"] == []
    assert boto3.client("cloudwatch").describe_alarms()["MetricAlarms"] == []


def _without_components(aws: Aws) -> Aws:
    """moto knows no inference components: there are none."""
    real = aws.sagemaker.get_paginator

    class None_:
        def paginate(self, **_: Any) -> list[Any]:
            return [{"InferenceComponents": []}]

    aws.sagemaker.get_paginator = lambda name: None_() if name == "list_inference_components" else real(name)
    return aws
