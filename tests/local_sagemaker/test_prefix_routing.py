"""PREFIX_AWARE: what begins alike goes to the same instance, until that one has enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_sagemaker.hosting.instances.instance_routing import PrefixAware
from tests.local_sagemaker.local_service import Cloud
from tests.local_sagemaker.test_endpoint_start import started

SYSTEM = "You are a patient librarian. " * 60


@pytest.fixture(scope="module")
def aware(cloud: Cloud) -> Iterator[str]:
    about = {"PrefixLength": 1024, "ConcurrencyThreshold": 4}
    routing = {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": about}
    started(cloud, "aware", variant={"InitialInstanceCount": 2, "RoutingConfig": routing})
    yield "aware"
    cloud.delete("aware")


def pid(cloud: Cloud, endpoint: str, system: str, question: str, **more: Any) -> int:
    body = json.dumps({"do": "echo", "system": system, "question": question})
    reply = cloud.runtime.invoke_endpoint(EndpointName=endpoint, Body=body.encode(), **more)
    found: int = json.loads(reply["Body"].read())["pid"]
    return found


def test_a_prefix_stays_with_its_instance_and_others_do_not(cloud: Cloud, aware: str) -> None:
    assert len({pid(cloud, aware, SYSTEM, str(number)) for number in range(12)}) == 1
    assert len({pid(cloud, aware, f"{number} {SYSTEM}", "?") for number in range(24)}) == 2
    applications = {pid(cloud, aware, SYSTEM, "?", PrefixAwareId=f"app-{number}") for number in range(24)}
    assert len(applications) == 2


def test_what_the_strategy_needs_is_required(cloud: Cloud) -> None:
    cloud.model("routed")
    about = {"PrefixLength": 2048, "ConcurrencyThreshold": 1}
    for routing in (
        {"RoutingStrategy": "PREFIX_AWARE"},
        {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": {"PrefixLength": 2048}},
        {"RoutingStrategy": "RANDOM", "PrefixAwareRoutingConfig": about},
    ):
        with pytest.raises(ClientError, match="PREFIX_AWARE"):
            cloud.config("routed", {"ModelName": "routed", "RoutingConfig": routing})


def test_an_instance_that_has_enough_is_passed_over_and_one_that_goes_moves_its_own_only() -> None:
    instances: list[Any] = [SimpleNamespace(id=f"i-{number}", outstanding=0) for number in range(5)]
    aware = PrefixAware(length=4, threshold=2)
    prefixes = [aware.prefix(f"{number:04}...".encode(), None) for number in range(200)]
    before = {prefix: aware.among(instances, prefix)[0] for prefix in prefixes}
    assert {each.id for each in before.values()} == {each.id for each in instances}
    gone, *rest = instances
    after = {prefix: aware.among(rest, prefix)[0] for prefix in prefixes}
    assert all(after[prefix] is before[prefix] for prefix in prefixes if before[prefix] is not gone)
    busy = before[prefixes[0]]
    busy.outstanding = 2
    assert aware.among(instances, prefixes[0])[0] is not busy
    for each in instances:
        each.outstanding = 2
    assert aware.among(instances, prefixes[0]) == instances
