"""What guards an update: alarms, baking periods, the sizes of steps; and how it is rolled back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_service import Cloud, until
from test_endpoint_changes import ask, errors, load, versions

from local_sagemaker.hosting.alarms import Alarms
from local_sagemaker.hosting.instances.host_settings import HostTiming
from local_sagemaker.hosting.instances.instance_pool import InstanceStartFailed
from local_sagemaker.hosting.rollout import Rollout
from local_sagemaker.hosting.update import Update

HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}
ONE = {"Type": "INSTANCE_COUNT", "Value": 1}
LONG = 3600


def canary(**more: Any) -> dict[str, Any]:
    routing = {"Type": "CANARY", "WaitIntervalInSeconds": LONG, "CanarySize": HALF, **more}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


def rolling(**more: Any) -> dict[str, Any]:
    return {"RollingUpdatePolicy": {"MaximumBatchSize": ONE, "WaitIntervalInSeconds": LONG, **more}}


@pytest.fixture
def alarm(cloud: Cloud) -> Iterator[str]:
    cloudwatch = cloud.service.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="errors",
        Namespace="AWS/SageMaker",
        MetricName="Invocation5XXErrors",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    yield "errors"
    cloudwatch.delete_alarms(AlarmNames=["errors"])


def ring(cloud: Cloud, alarm: str) -> None:
    cloud.service.client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test")


@contextmanager
def updating(cloud: Cloud, name: str, config: dict[str, Any], alarm: str) -> Iterator[dict[str, Any]]:
    """An update under load, up to its first baking period; afterwards it is settled, and no request has failed."""
    versions(cloud, name, {}, {})
    assert cloud.endpoint(name, f"{name}-1") == "InService"
    config = {**config, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]}}
    with load(cloud, name) as seen:
        cloud.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=f"{name}-2", DeploymentConfig=config)
        until(lambda: seen["v2"] > 0)
        yield pending(cloud, name)
        described = cloud.settled(name)
        until(lambda: len(cloud.instances(name)) == 2)
    assert errors(seen) == {}
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", f"{name}-1")
    assert "PendingDeploymentSummary" not in described
    assert {ask(cloud, name)["version"] for _ in range(8)} == {"v1"}
    assert "The CloudWatch alarm errors is in the state ALARM" in described["FailureReason"]
    cloud.delete(name)


def pending(cloud: Cloud, name: str) -> dict[str, Any]:
    (variant,) = cloud.sagemaker.describe_endpoint(EndpointName=name)["PendingDeploymentSummary"]["ProductionVariants"]
    found: dict[str, Any] = variant
    return found


def test_an_alarm_in_a_canarys_baking_period_rolls_back(cloud: Cloud, alarm: str) -> None:
    with updating(cloud, "ringing", canary(), alarm) as variant:
        assert [each["Status"] for each in variant["VariantStatus"]] == ["Baking"]
        assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
        ring(cloud, alarm)


def test_a_rolling_update_moves_instances_batch_by_batch_and_back(cloud: Cloud, alarm: str) -> None:
    with updating(cloud, "batches", rolling(RollbackMaximumBatchSize=ONE), alarm) as variant:
        assert variant["CurrentInstanceCount"] == 1
        before = cloud.instances("batches")
        assert len(before) == 3  # of both fleets: a batch more than before
        ring(cloud, alarm)
        cloud.settled("batches")
        # The old fleet was whole: nothing of it has ended, and nothing was started.
        assert {each["pid"] for each in cloud.instances("batches")} < {each["pid"] for each in before}


def test_an_alarm_in_a_later_batch_brings_the_old_instances_back(cloud: Cloud, alarm: str) -> None:
    """The first batch bakes for 2 s; when it has passed, an instance of the old fleet is gone."""
    with updating(cloud, "later", rolling(WaitIntervalInSeconds=120, RollbackMaximumBatchSize=ONE), alarm):
        until(lambda: pending(cloud, "later")["CurrentInstanceCount"] == 2)
        ring(cloud, alarm)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (canary(CanarySize={"Type": "CAPACITY_PERCENT", "Value": 51}), "CanarySize must be 0% to 50%"),
        (canary(CanarySize={"Type": "INSTANCE_COUNT", "Value": 2}), "CanarySize must be 0% to 50%"),
        (canary(LinearStepSize=HALF), "LinearStepSize is of the type LINEAR, not of CANARY"),
        (
            canary(Type="LINEAR", CanarySize=None, LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 9}),
            "LinearStepSize must be 10% to 50%",
        ),
        (rolling(MaximumBatchSize={"Type": "CAPACITY_PERCENT", "Value": 4}), "MaximumBatchSize must be 5% to 50%"),
        (rolling(RollbackMaximumBatchSize={"Type": "INSTANCE_COUNT", "Value": 3}), "RollbackMaximumBatchSize must be"),
        (rolling(MaximumExecutionTimeoutInSeconds=3600), "MaximumExecutionTimeoutInSeconds .3600. must be larger"),
        ({**canary(), **rolling()}, "Only one of"),
        (
            {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "none"}]}},
            "Could not find the CloudWatch alarm none",
        ),
        ({"AutoRollbackConfiguration": {"Alarms": []}}, "greater than or equal to 1"),
    ],
)
def test_a_deployment_is_checked(cloud: Cloud, config: dict[str, Any], said: str) -> None:
    if not cloud.exists("guarded"):
        versions(cloud, "guarded", {})
        cloud.endpoint("guarded", "guarded-1")
    if routing := config.get("BlueGreenUpdatePolicy", {}).get("TrafficRoutingConfiguration"):
        for name in [name for name, value in routing.items() if value is None]:
            del routing[name]
    with pytest.raises(ClientError, match=said) as caught:
        cloud.sagemaker.update_endpoint(EndpointName="guarded", EndpointConfigName="guarded-1", DeploymentConfig=config)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_an_update_that_takes_too_long_fails() -> None:
    nowhere = Alarms("http://127.0.0.1:9", "us-east-1")
    update = Update(Rollout(limit=600), HostTiming(speed=1e9), nowhere, threading.Event())
    time.sleep(0.001)  # 600 s, at that speed, are less
    with pytest.raises(InstanceStartFailed, match=r"longer than MaximumExecutionTimeoutInSeconds \(600\)"):
        update.cancelled()
    assert not Update(Rollout(limit=600), HostTiming(), nowhere, threading.Event()).cancelled()
