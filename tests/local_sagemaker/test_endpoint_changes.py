"""Endpoints in motion: updated under load, rolled back, weighed, hit by faults, stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import Cloud, gone, until
from tests.local_sagemaker.test_endpoint_start import ask, started


@contextmanager
def load(cloud: Cloud, endpoint: str, clients: int = 4) -> Iterator[Counter[str]]:
    """Whole and streamed invocations from clients that never retry; counts versions and errors."""
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def whole() -> str:
        return str(ask(cloud, endpoint, "wait", seconds=0.01)["version"])

    def streamed() -> str:
        text = b"".join(cloud.stream(endpoint, 3, pause=0.01)).decode()
        assert text.count("\n\n") == 3
        return text.split()[-1]

    def invoke(call: Any) -> None:
        while not ended.is_set():
            try:
                seen[call()] += 1
            except ClientError as error:
                seen[f"error {error.response['Error']['Code']}"] += 1
            except Exception as error:
                seen[f"error {error!r}"] += 1

    threads = [threading.Thread(target=invoke, args=(whole if n % 2 else streamed,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def errors(seen: Counter[str]) -> dict[str, int]:
    return {what: count for what, count in seen.items() if what.startswith("error")}


def versions(cloud: Cloud, name: str, *settings: dict[str, str]) -> None:
    """Configurations NAME-1, NAME-2, ... of models that tell their version."""
    for number, environment in enumerate(settings, 1):
        each = f"{name}-{number}"
        cloud.model(each, None, STUB_VERSION=f"v{number}", **environment)
        cloud.config(each, {"ModelName": each, "InitialInstanceCount": 2})


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("at-once", None),
        # What `deploy` sends for several instances. It is not carried out here.
        (
            "rolling",
            {
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1},
                    "WaitIntervalInSeconds": 60,
                },
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]},
            },
        ),
    ],
)
def test_an_update_under_load_fails_no_request(
    cloud: Cloud, name: str, policy: dict[str, Any] | None, tmp_path: Path
) -> None:
    versions(cloud, name, {}, {"STUB_READY_WITH": str(tmp_path / "ready")})
    assert cloud.endpoint(name, f"{name}-1") == "InService"
    before = {each["instance"] for each in cloud.instances(name)}
    with load(cloud, name) as seen:
        until(lambda: seen["v1"] > 0)
        more = {"DeploymentConfig": policy} if policy else {}
        cloud.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=f"{name}-2", **more)
        described = cloud.sagemaker.describe_endpoint(EndpointName=name)
        assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("Updating", f"{name}-1")
        with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
            cloud.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=f"{name}-2")
        (tmp_path / "ready").touch()
        described = cloud.settled(name)
        until(lambda: not before & {each["instance"] for each in cloud.instances(name)})
        until(lambda: seen["v2"] > 0)
    assert errors(seen) == {}
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", f"{name}-2")
    assert {ask(cloud, name)["version"] for _ in range(5)} == {"v2"}
    cloud.delete(name)


def test_a_deleted_endpoint_ends_the_fleet_that_still_answers(cloud: Cloud) -> None:
    versions(cloud, "drained", {}, {})
    assert cloud.endpoint("drained", "drained-1") == "InService"
    before = {each["pid"] for each in cloud.instances("drained")}
    next(cloud.stream("drained", 600, pause=1.0))
    cloud.sagemaker.update_endpoint(EndpointName="drained", EndpointConfigName="drained-2")
    assert cloud.settled("drained")["EndpointConfigName"] == "drained-2"
    assert before & {each["pid"] for each in cloud.instances("drained")}
    cloud.delete("drained")
    assert all(gone(pid) for pid in before)


def test_an_update_that_does_not_start_is_rolled_back(cloud: Cloud) -> None:
    versions(cloud, "back", {}, {"STUB_EXIT": "1"})
    cloud.endpoint("back", "back-1")
    with load(cloud, "back") as seen:
        until(lambda: seen["v1"] > 0)
        cloud.sagemaker.update_endpoint(EndpointName="back", EndpointConfigName="back-2")
        described = cloud.settled("back")
    assert errors(seen) == {}
    assert seen.keys() == {"v1"}
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "back-1")
    assert "did not pass the ping health check" in described["FailureReason"]
    cloud.delete("back")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"EndpointConfigName": "missing"}, "Could not find endpoint configuration"),
        ({"EndpointName": "missing"}, "Could not find endpoint "),
    ],
)
def test_an_update_is_checked(cloud: Cloud, members: dict[str, Any], said: str) -> None:
    if not cloud.exists("checked"):
        started(cloud, "checked")
    asked = {"EndpointName": "checked", "EndpointConfigName": "checked", **members}
    with pytest.raises(ClientError, match=said) as caught:
        cloud.sagemaker.update_endpoint(**asked)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_requests_go_by_weight_and_to_a_named_variant(cloud: Cloud) -> None:
    for version in ("a", "b"):
        cloud.model(f"weight-{version}", STUB_VERSION=version)
    weights = {"weights-1": (1, 0), "weights-2": (0, 1)}
    for config, pair in weights.items():
        variants = [
            {"VariantName": version, "ModelName": f"weight-{version}", "InitialVariantWeight": weight}
            for version, weight in zip("ab", pair, strict=True)
        ]
        cloud.config(config, *variants)
    cloud.endpoint("weights", "weights-1")
    assert {ask(cloud, "weights")["version"] for _ in range(10)} == {"a"}
    asked = {"EndpointName": "weights", "Body": b"{}", "TargetVariant": "b"}
    reply = cloud.runtime.invoke_endpoint(**asked)
    assert (json.loads(reply["Body"].read())["version"], reply["InvokedProductionVariant"]) == ("b", "b")
    cloud.sagemaker.update_endpoint(EndpointName="weights", EndpointConfigName="weights-2")
    described = {each["VariantName"]: each for each in cloud.settled("weights")["ProductionVariants"]}
    assert (described["b"]["CurrentInstanceCount"], described["b"]["CurrentWeight"]) == (1, 1.0)
    assert {ask(cloud, "weights")["version"] for _ in range(10)} == {"b"}
    cloud.delete("weights")


def test_a_killed_instance_is_replaced_and_the_others_go_on(cloud: Cloud) -> None:
    started(cloud, "killed", variant={"InitialInstanceCount": 2})
    before = {each["instance"] for each in cloud.instances("killed")}
    with load(cloud, "killed") as seen:
        os.kill(cloud.instances("killed")[0]["pid"], signal.SIGKILL)

        def replaced() -> bool:
            now = {each["instance"] for each in cloud.instances("killed") if each["state"] == "Healthy"}
            return len(now) == 2 and len(now & before) == 1

        until(replaced)
    assert errors(seen).keys() <= {"error ModelError", "error ModelStreamError"}
    # Those that were under way on it, and those that it took while it was being killed.
    assert sum(errors(seen).values()) <= 8
    assert cloud.settled("killed")["EndpointStatus"] == "InService"
    cloud.delete("killed")


def test_an_instance_that_takes_no_connection_is_passed_over_and_replaced(cloud: Cloud) -> None:
    started(cloud, "passed-over", variant={"InitialInstanceCount": 2})
    before = {each["pid"] for each in cloud.instances("passed-over")}
    ask(cloud, "passed-over", "deafen")
    answered = {ask(cloud, "passed-over")["pid"] for _ in range(12)}
    assert len(answered & before) == 1
    until(lambda: len({each["pid"] for each in cloud.instances("passed-over")} & before) == 1)
    cloud.delete("passed-over")


def test_an_instance_that_answers_no_pings_is_replaced(cloud: Cloud) -> None:
    started(cloud, "ill")
    (before,) = cloud.instances("ill")
    os.kill(before["pid"], signal.SIGSTOP)
    until(lambda: all(each["instance"] != before["instance"] for each in cloud.instances("ill")))
    until(lambda: [each["state"] for each in cloud.instances("ill")] == ["Healthy"])
    assert gone(before["pid"])
    cloud.delete("ill")


def test_an_endpoint_without_a_healthy_instance_is_unavailable_until_it_is_replaced(
    cloud: Cloud, tmp_path: Path
) -> None:
    (ready := tmp_path / "ready").touch()
    started(cloud, "single", STUB_READY_WITH=str(ready))
    ready.unlink()
    (before,) = cloud.instances("single")
    with pytest.raises(ClientError) as caught:
        ask(cloud, "single", "die")
    assert caught.value.response["Error"]["Code"] == "ModelError"
    code = "ModelError"
    while code == "ModelError":  # A process that is being killed may still take a connection.
        with pytest.raises(ClientError) as caught:
            ask(cloud, "single")
        code = caught.value.response["Error"]["Code"]
    assert (code, caught.value.response["ResponseMetadata"]["HTTPStatusCode"]) == ("ServiceUnavailable", 503)
    ready.touch()
    until(lambda: [each["state"] for each in cloud.instances("single") if each["pid"] != before["pid"]] == ["Healthy"])
    assert ask(cloud, "single")["path"] == "/invocations"
    cloud.delete("single")


def test_a_ping_without_an_end_keeps_no_container_alive(cloud: Cloud) -> None:
    started(cloud, "endless", STUB_ENDLESS_PING="1")
    (instance,) = cloud.instances("endless")
    cloud.delete("endless")
    assert gone(instance["pid"])


def test_a_container_that_ignores_sigterm_is_killed(cloud: Cloud) -> None:
    started(cloud, "stubborn", STUB_IGNORES_SIGTERM="1")
    (instance,) = cloud.instances("stubborn")
    cloud.sagemaker.delete_endpoint(EndpointName="stubborn")
    assert cloud.sagemaker.describe_endpoint(EndpointName="stubborn")["EndpointStatus"] == "Deleting"
    with pytest.raises(ClientError, match="in-progress"):
        cloud.sagemaker.delete_endpoint(EndpointName="stubborn")
    os.kill(instance["pid"], 0)
    until(lambda: not cloud.exists("stubborn"))
    assert gone(instance["pid"])
