"""Inference components: copies of models on one endpoint, adapters in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import ROLE, Cloud, archive, until

ARTIFACT = {"Container": {"ArtifactUrl": "s3://models/adapter.tar.gz"}}
UPSIDE_DOWN = {"MinMemoryRequiredInMb": 4096, "MaxMemoryRequiredInMb": 1024}
COMPUTE = {"ComputeResourceRequirements": {"NumberOfAcceleratorDevicesRequired": 1, "MinMemoryRequiredInMb": 1024}}


@pytest.fixture(scope="module")
def shared(cloud: Cloud) -> Iterator[str]:
    """An endpoint whose variant has no model of its own."""
    cloud.config("shared", {"ModelName": None}, ExecutionRoleArn=ROLE)
    assert cloud.endpoint("shared", "shared") == "InService"
    cloud.s3.put_object(Bucket="models", Key="adapter.tar.gz", Body=archive({"adapter_config.json": b"{}"}))
    yield "shared"
    for each in reversed(cloud.sagemaker.list_inference_components(MaxResults=100)["InferenceComponents"]):
        remove(cloud, each["InferenceComponentName"])
    cloud.delete("shared")


def component(cloud: Cloud, name: str, copies: int = 1, **environment: str) -> dict[str, Any]:
    container = {"Image": "stub", "Environment": environment}
    cloud.sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName="shared",
        VariantName="AllTraffic",
        Specification={"Container": container, **COMPUTE},
        RuntimeConfig={"CopyCount": copies},
    )
    return settled(cloud, name)


def renew(cloud: Cloud, name: str, **environment: str) -> None:
    """Gives a component a new specification."""
    specification = {"Container": {"Image": "stub", "Environment": environment}, **COMPUTE}
    cloud.sagemaker.update_inference_component(InferenceComponentName=name, Specification=specification)


def scale(cloud: Cloud, name: str, copies: int) -> None:
    cloud.sagemaker.update_inference_component_runtime_config(
        InferenceComponentName=name, DesiredRuntimeConfig={"CopyCount": copies}
    )


def adapter(cloud: Cloud, name: str, base: str) -> dict[str, Any]:
    specification = {"BaseInferenceComponentName": base, "Container": {"ArtifactUrl": "s3://models/adapter.tar.gz"}}
    cloud.sagemaker.create_inference_component(
        InferenceComponentName=name, EndpointName="shared", Specification=specification
    )
    return settled(cloud, name)


def settled(cloud: Cloud, name: str) -> dict[str, Any]:
    def described() -> dict[str, Any]:
        found: dict[str, Any] = cloud.sagemaker.describe_inference_component(InferenceComponentName=name)
        return found

    until(lambda: described()["InferenceComponentStatus"] in ("InService", "Failed"))
    return described()


def remove(cloud: Cloud, name: str) -> None:
    cloud.sagemaker.delete_inference_component(InferenceComponentName=name)
    until(lambda: name not in str(cloud.sagemaker.list_inference_components()["InferenceComponents"]))


def replaced_by_one(cloud: Cloud, pid: int) -> bool:
    instances = cloud.instances("shared")
    return all(each["pid"] != pid and each["state"] == "Healthy" for each in instances)


def ask(cloud: Cloud, name: str, **body: Any) -> dict[str, Any]:
    reply = cloud.runtime.invoke_endpoint(
        EndpointName="shared", InferenceComponentName=name, Body=json.dumps(body).encode()
    )
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    answer: dict[str, Any] = json.loads(reply["Body"].read())
    return answer


def test_components_share_an_endpoint(cloud: Cloud, shared: str) -> None:
    for name in ("first", "second"):
        described = component(cloud, name, STUB_VERSION=name)
        assert described["InferenceComponentStatus"] == "InService"
        assert described["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
        assert described["Specification"]["Container"]["DeployedImage"]["SpecifiedImage"] == "stub"
        assert ask(cloud, name)["version"] == name
        url = f"{cloud.service.url}/endpoints/{shared}/inference-components/{name}/openai/v1/chat/completions"
        answer = httpx.post(url, json={}).json()
        assert (answer["version"], answer["path"]) == (name, "/v1/chat/completions")
    with pytest.raises(ClientError, match="Inference Component Name header is required"):
        cloud.runtime.invoke_endpoint(EndpointName=shared, Body=b"{}")
    body = json.dumps({"do": "stream", "count": 2}).encode()
    reply = cloud.runtime.invoke_endpoint_with_response_stream(
        EndpointName=shared, InferenceComponentName="first", Body=body
    )
    assert b"1 of first" in b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"])
    listed = cloud.sagemaker.list_inference_components(EndpointNameEquals=shared, NameContains="first")
    assert [each["InferenceComponentName"] for each in listed["InferenceComponents"]] == ["first"]
    assert cloud.sagemaker.list_inference_components(EndpointNameEquals="other")["InferenceComponents"] == []


def test_a_session_of_another_component_is_unknown(cloud: Cloud, shared: str) -> None:
    for name in ("opens", "other"):
        component(cloud, name, STUB_VERSION=name)
    asked = {"EndpointName": shared, "Body": b'{"requestType": "NEW_SESSION"}', "SessionId": "NEW_SESSION"}
    opened = cloud.runtime.invoke_endpoint(InferenceComponentName="opens", **asked)
    session = opened["NewSessionId"].partition(";")[0]
    within = {"EndpointName": shared, "Body": b"{}", "SessionId": session}
    reply = cloud.runtime.invoke_endpoint(InferenceComponentName="opens", **within)
    assert json.loads(reply["Body"].read())["version"] == "opens"
    with pytest.raises(ClientError, match="does not exist, is closed or has expired") as caught:
        cloud.runtime.invoke_endpoint(InferenceComponentName="other", **within)
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    for name in ("opens", "other"):
        remove(cloud, name)


def test_components_of_an_isolated_endpoint_have_no_s3(cloud: Cloud) -> None:
    cloud.config("isolated", {"ModelName": None}, ExecutionRoleArn=ROLE, EnableNetworkIsolation=True)
    cloud.endpoint("isolated", "isolated")
    cloud.sagemaker.create_inference_component(
        InferenceComponentName="inside",
        EndpointName="isolated",
        VariantName="AllTraffic",
        Specification={"Container": {"Image": "stub"}, **COMPUTE},
        RuntimeConfig={"CopyCount": 1},
    )
    settled(cloud, "inside")
    reply = cloud.runtime.invoke_endpoint(
        EndpointName="isolated", InferenceComponentName="inside", Body=b'{"do": "environment"}'
    )
    assert "AWS_ENDPOINT_URL_S3" not in json.loads(reply["Body"].read())["environment"]
    remove(cloud, "inside")
    cloud.delete("isolated")


def test_copies_are_scaled_and_replaced(cloud: Cloud, shared: str) -> None:
    component(cloud, "scaled")
    scale(cloud, "scaled", 2)
    assert settled(cloud, "scaled")["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}
    pids = {ask(cloud, "scaled")["pid"] for _ in range(20)}
    assert len(pids) == 2
    with pytest.raises(ClientError, match="ModelError"):
        ask(cloud, "scaled", do="die")
    until(lambda: len({each["pid"] for each in cloud.instances("shared")} & pids) == 1)
    until(lambda: settled(cloud, "scaled")["RuntimeConfig"]["CurrentCopyCount"] == 2)
    assert len({ask(cloud, "scaled")["pid"] for _ in range(20)}) == 2
    scale(cloud, "scaled", 0)
    assert settled(cloud, "scaled")["RuntimeConfig"] == {"DesiredCopyCount": 0, "CurrentCopyCount": 0}
    with pytest.raises(ClientError, match="has no capacity to process this request") as caught:
        ask(cloud, "scaled")
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    scale(cloud, "scaled", 1)
    assert settled(cloud, "scaled")["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    assert ask(cloud, "scaled")["path"] == "/invocations"
    with pytest.raises(ClientError, match="Could not find inference component"):
        scale(cloud, "never", 1)
    remove(cloud, "scaled")


def test_copies_that_do_not_start_leave_those_that_serve(cloud: Cloud, shared: str, tmp_path: Path) -> None:
    (room := tmp_path / "room").mkdir()
    (room / "first").touch()
    (ready := tmp_path / "ready").touch()
    component(cloud, "crowded", STUB_ROOM=str(room), STUB_READY_WITH=str(ready))
    pid = ask(cloud, "crowded")["pid"]
    ready.unlink()
    (room / "second").touch()
    scale(cloud, "crowded", 3)  # One of the two new copies ends at once, while the other is loading.
    described = settled(cloud, "crowded")
    assert described["InferenceComponentStatus"] == "InService"
    assert "could not be scaled to 3" in described["FailureReason"]
    assert described["RuntimeConfig"] == {"DesiredCopyCount": 1, "CurrentCopyCount": 1}
    assert ask(cloud, "crowded")["pid"] == pid
    ready.touch()
    (room / "third").touch()
    with pytest.raises(ClientError, match="ModelError"):
        ask(cloud, "crowded", do="die")
    until(lambda: pid not in {each["pid"] for each in cloud.instances("shared")})
    until(lambda: settled(cloud, "crowded")["RuntimeConfig"]["CurrentCopyCount"] == 1)
    assert ask(cloud, "crowded")["pid"] != pid
    remove(cloud, "crowded")


def test_a_call_to_a_component_at_zero_is_refused_until_a_copy_is_ready(
    cloud: Cloud, shared: str, tmp_path: Path
) -> None:
    component(cloud, "asleep", copies=0, STUB_READY_WITH=str(tmp_path / "ready"))
    with pytest.raises(ClientError) as refused:
        ask(cloud, "asleep")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    scale(cloud, "asleep", 1)
    with pytest.raises(ClientError, match="no instance is healthy") as refused:
        ask(cloud, "asleep")
    assert refused.value.response["Error"]["Code"] == "ServiceUnavailable"
    (tmp_path / "ready").touch()
    assert settled(cloud, "asleep")["InferenceComponentStatus"] == "InService"
    assert ask(cloud, "asleep")["path"] == "/invocations"
    remove(cloud, "asleep")


def test_a_component_gets_a_new_specification(cloud: Cloud, shared: str) -> None:
    component(cloud, "renewed", STUB_VERSION="v1")
    renew(cloud, "renewed", STUB_VERSION="v2")
    assert settled(cloud, "renewed")["InferenceComponentStatus"] == "InService"
    assert ask(cloud, "renewed")["version"] == "v2"
    with pytest.raises(ClientError, match="Specification or RuntimeConfig must be given"):
        cloud.sagemaker.update_inference_component(InferenceComponentName="renewed")
    remove(cloud, "renewed")
    with pytest.raises(ClientError, match="Inference Component renewed of endpoint shared not found"):
        ask(cloud, "renewed")


def test_a_new_specification_that_does_not_start_leaves_the_old_one(cloud: Cloud, shared: str) -> None:
    component(cloud, "back", STUB_VERSION="v1")
    renew(cloud, "back", STUB_EXIT="1")
    described = settled(cloud, "back")
    assert described["InferenceComponentStatus"] == "InService"
    assert "did not pass the ping health check" in described["FailureReason"]
    assert described["Specification"]["Container"]["Environment"] == {"STUB_VERSION": "v1"}
    assert ask(cloud, "back")["version"] == "v1"
    remove(cloud, "back")


def test_an_adapter_is_loaded_into_its_base_and_again_into_a_replacement(cloud: Cloud, shared: str) -> None:
    component(cloud, "base")
    assert adapter(cloud, "poems", "base")["InferenceComponentStatus"] == "InService"
    told = ask(cloud, "poems")
    assert told["adapters"] == ["poems"]
    assert told["headers"]["x-amzn-sagemaker-adapter-identifier"] == "poems"
    assert told["headers"]["X-Amzn-SageMaker-Adapter-Alias".lower()] == "poems"
    assert "x-amzn-sagemaker-adapter-identifier" not in ask(cloud, "base")["headers"]
    with pytest.raises(ClientError, match="ModelError"):
        ask(cloud, "base", do="die")
    until(lambda: replaced_by_one(cloud, told["pid"]))
    replaced = ask(cloud, "poems")
    assert replaced["pid"] != told["pid"]
    assert replaced["adapters"] == ["poems"]
    with pytest.raises(ClientError, match="has adapters"):
        cloud.sagemaker.delete_inference_component(InferenceComponentName="base")
    with pytest.raises(ClientError, match="has no copies of its own"):
        scale(cloud, "poems", 2)
    renew(cloud, "base", STUB_VERSION="v2")
    assert settled(cloud, "base")["InferenceComponentStatus"] == "InService"
    told = ask(cloud, "poems")
    assert (told["version"], told["adapters"]) == ("v2", ["poems"])
    remove(cloud, "poems")
    assert ask(cloud, "base")["adapters"] == []
    remove(cloud, "base")


def test_an_adapter_that_is_rejected_leaves_the_one_before(cloud: Cloud, shared: str) -> None:
    component(cloud, "keeps")
    adapter(cloud, "stays", "keeps")
    cloud.s3.put_object(Bucket="models", Key="bad.tar.gz", Body=archive({"bad": b""}))
    for artifact, reason in (("bad", "rank 512 is above 16"), ("adapter", None)):
        specification = {
            "BaseInferenceComponentName": "keeps",
            "Container": {"ArtifactUrl": f"s3://models/{artifact}.tar.gz"},
        }
        cloud.sagemaker.update_inference_component(InferenceComponentName="stays", Specification=specification)
        described = settled(cloud, "stays")
        assert described["InferenceComponentStatus"] == "InService"
        assert (reason or "") in described.get("FailureReason", "")
        assert described["Specification"]["Container"]["ArtifactUrl"] == "s3://models/adapter.tar.gz"
        assert ask(cloud, "stays")["adapters"] == ["stays"]
    remove(cloud, "stays")
    assert ask(cloud, "keeps")["adapters"] == []
    remove(cloud, "keeps")


def test_what_does_not_start_fails_with_a_reason(cloud: Cloud, shared: str) -> None:
    failed = component(cloud, "no-start", STUB_EXIT="1")
    assert failed["InferenceComponentStatus"] == "Failed"
    assert "did not pass the ping health check" in failed["FailureReason"]
    component(cloud, "no-room", STUB_REFUSE_ADAPTERS="1")
    refused = adapter(cloud, "refused", "no-room")
    assert "was answered 507 by the container" in refused["FailureReason"]
    for name in ("no-start", "refused", "no-room"):
        remove(cloud, name)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"EndpointName": "never"}, "Could not find endpoint"),
        ({"VariantName": "never"}, "Could not find variant 'never' of endpoint shared"),
        ({"Specification": COMPUTE}, "Exactly one of ModelName and Container"),
        ({"Specification": {"ModelName": "never", **COMPUTE}}, "Could not find model"),
        ({"Specification": {"Container": {}, **COMPUTE}}, "Exactly one of ModelName and Container"),
        ({"Specification": {"Container": {"Image": "stub"}}}, "must be given"),
        ({"RuntimeConfig": None}, "must be given"),
        ({"RuntimeConfig": {"CopyCount": -1}}, "greater than or equal to 0"),
        ({"Specification": {"BaseInferenceComponentName": "never"}}, "Could not find inference component"),
        ({"Specification": None}, "Specification must be given"),
        (
            {"Specification": {"BaseInferenceComponentName": "checked", **ARTIFACT, **COMPUTE}},
            "An adapter has no ComputeResourceRequirements of its own",
        ),
        (
            {"Specification": {"Container": {"Image": "stub"}, "ComputeResourceRequirements": UPSIDE_DOWN}},
            "MinMemoryRequiredInMb must not exceed MaxMemoryRequiredInMb",
        ),
    ],
)
def test_a_component_is_checked(cloud: Cloud, shared: str, members: dict[str, Any], said: str) -> None:
    asked = {
        "InferenceComponentName": "wrong",
        "EndpointName": shared,
        "VariantName": "AllTraffic",
        "Specification": {"Container": {"Image": "stub"}, **COMPUTE},
        "RuntimeConfig": {"CopyCount": 1},
        **members,
    }
    with pytest.raises(ClientError, match=said) as caught:
        cloud.sagemaker.create_inference_component(**{key: value for key, value in asked.items() if value is not None})
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_component_that_is_deleted_while_it_starts_does_not_come_back(cloud: Cloud, shared: str) -> None:
    def create(version: str, ready_with: str) -> None:
        container = {"Image": "stub", "Environment": {"STUB_VERSION": version, "STUB_READY_WITH": ready_with}}
        cloud.sagemaker.create_inference_component(
            InferenceComponentName="again",
            EndpointName=shared,
            VariantName="AllTraffic",
            Specification={"Container": container, **COMPUTE},
            RuntimeConfig={"CopyCount": 1},
        )

    before = {each["instance"] for each in cloud.instances(shared)}
    create("wrong", "/never")
    until(lambda: len(cloud.instances(shared)) > len(before))
    remove(cloud, "again")
    until(lambda: {each["instance"] for each in cloud.instances(shared)} <= before)
    create("right", "/")
    assert settled(cloud, "again")["InferenceComponentStatus"] == "InService"
    assert ask(cloud, "again")["version"] == "right"
    remove(cloud, "again")


def test_names_are_taken_and_missing(cloud: Cloud, shared: str) -> None:
    component(cloud, "named")
    with pytest.raises(ClientError, match="Cannot create already existing inference component"):
        component(cloud, "named")
    with pytest.raises(ClientError, match="still has inference components"):
        cloud.sagemaker.delete_endpoint(EndpointName=shared)
    for call in (cloud.sagemaker.describe_inference_component, cloud.sagemaker.delete_inference_component):
        with pytest.raises(ClientError, match="Could not find inference component"):
            call(InferenceComponentName="never")
    remove(cloud, "named")
