"""Quotas: ResourceLimitExceeded, as an account without any meets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_service import QUICK, ROLE, Cloud, LocalService
from test_components import COMPUTE
from test_transform_jobs import create

QUOTAS = ("model=2", "endpoint-config=3", "endpoint=2", "inference-component=0", "transform-job=0", "instances=3")


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    options = [word for quota in QUOTAS for word in ("--quota", quota)]
    service = LocalService(tmp_path_factory.mktemp("tight"), *QUICK, *options)
    yield Cloud(service)
    service.down()


def exceeded(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == "ResourceLimitExceeded"
    message: str = caught.value.response["Error"]["Message"]
    return message


def test_each_kind_of_resource_has_a_quota(tight: Cloud) -> None:
    tight.model("m")
    tight.model("batch")
    assert "'models' is 2 Resources, with current utilization of 2 Resources" in exceeded(lambda: tight.model("n"))
    for name, count in (("one", 1), ("two", 2), ("four", 4)):
        tight.config(name, {"ModelName": "m", "InitialInstanceCount": count})
    assert "'endpoint-configs'" in exceeded(lambda: tight.config("more", {"ModelName": "m"}))
    assert "'transform-jobs'" in exceeded(lambda: create(tight, "job"))

    said = exceeded(lambda: tight.endpoint("e", "four"))
    assert "'ml.inf2.xlarge for endpoint usage' is 3 Instances" in said
    assert "a request delta of 4 Instances" in said
    assert tight.endpoint("e", "two") == "InService"
    assert "current utilization of 2 Instances" in exceeded(lambda: tight.endpoint("f", "two"))
    assert tight.endpoint("f", "one") == "InService"
    assert "'endpoints'" in exceeded(lambda: tight.endpoint("g", "one"))

    update = tight.sagemaker.update_endpoint
    assert "for endpoint usage" in exceeded(lambda: update(EndpointName="f", EndpointConfigName="one"))
    scale = tight.sagemaker.update_endpoint_weights_and_capacities
    wanted = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}]
    assert "for endpoint usage" in exceeded(lambda: scale(EndpointName="f", DesiredWeightsAndCapacities=wanted))
    wanted[0]["DesiredInstanceCount"] = 1
    scale(EndpointName="e", DesiredWeightsAndCapacities=wanted)
    assert tight.settled("e")["EndpointStatus"] == "InService"
    assert "'inference-components'" in exceeded(
        lambda: tight.sagemaker.create_inference_component(
            InferenceComponentName="c",
            EndpointName="e",
            VariantName="AllTraffic",
            Specification={"Container": {"Image": "stub"}, **COMPUTE},
            RuntimeConfig={"CopyCount": 1},
        )
    )
    assert ROLE in tight.sagemaker.describe_model(ModelName="m")["ExecutionRoleArn"]
