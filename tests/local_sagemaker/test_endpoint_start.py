"""What creating an endpoint does: model data, environment, process, pings; or a FailureReason."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import ROLE, Cloud, archive, until

SOURCE = {"S3DataType": "S3Prefix", "CompressionType": "None"}


def ask(cloud: Cloud, endpoint: str, do: str = "echo", **more: Any) -> dict[str, Any]:
    reply = cloud.runtime.invoke_endpoint(EndpointName=endpoint, Body=json.dumps({"do": do, **more}).encode())
    answer: dict[str, Any] = json.loads(reply["Body"].read())
    return answer


def started(
    cloud: Cloud, name: str, container: dict[str, Any] | None = None, variant: dict[str, Any] | None = None, **env: str
) -> dict[str, Any]:
    cloud.model(name, container, **env)
    cloud.config(name, {"ModelName": name, **(variant or {})})
    cloud.endpoint(name, name)
    described: dict[str, Any] = cloud.sagemaker.describe_endpoint(EndpointName=name)
    return described


def test_a_container_finds_its_model_and_sagemakers_environment(cloud: Cloud) -> None:
    files = {"config.json": b"{}", "deep/er/weights": b"w"}
    cloud.s3.put_object(Bucket="models", Key="start.tar.gz", Body=archive(files))
    data = {"ModelDataUrl": "s3://models/start.tar.gz", "Environment": {"OF_THE_MODEL": "größe"}}
    described = started(cloud, "start", data)
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    assert described["ProductionVariants"][0]["DeployedImages"][0]["SpecifiedImage"] == "stub"
    seen = ask(cloud, "start", "environment")
    assert seen["files"] == {name: content.decode() for name, content in files.items()}
    environment = seen["environment"]
    assert environment["OF_THE_MODEL"] == "größe"
    assert environment["AWS_REGION"] == "us-east-1"
    assert environment["AWS_ENDPOINT_URL_S3"] == cloud.service.exports["AWS_ENDPOINT_URL_S3"]
    assert "PYTEST_CURRENT_TEST" not in environment  # nor anything else of whoever has typed `up`
    assert ask(cloud, "start", "write")["refused"] is not None
    cloud.delete("start")


@pytest.mark.parametrize("isolated", ["model", "config"])
def test_an_isolated_container_has_no_credentials_and_no_s3(cloud: Cloud, isolated: str) -> None:
    name, flag = f"isolated-{isolated}", {"EnableNetworkIsolation": True}
    cloud.sagemaker.create_model(
        ModelName=name,
        PrimaryContainer={"Image": "stub"},
        ExecutionRoleArn=ROLE,
        **(flag if isolated == "model" else {}),
    )
    cloud.config(name, {"ModelName": name}, **(flag if isolated == "config" else {}))
    assert cloud.endpoint(name, name) == "InService"
    environment = ask(cloud, name, "environment")["environment"]
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"} & environment.keys()
    assert (environment["HF_HUB_OFFLINE"], environment["AWS_REGION"]) == ("1", "us-east-1")
    cloud.delete(name)


def test_a_prefix_and_more_sources_become_directories(cloud: Cloud) -> None:
    for key in ("prefix/a.json", "prefix/b/c.bin", "more/adapter.bin"):
        cloud.s3.put_object(Bucket="models", Key=key, Body=key.encode())
    container = {
        "ModelDataSource": {"S3DataSource": {"S3Uri": "s3://models/prefix/", **SOURCE}},
        "AdditionalModelDataSources": [
            {"ChannelName": "draft", "S3DataSource": {"S3Uri": "s3://models/more/", **SOURCE}}
        ],
    }
    assert started(cloud, "prefix", container)["EndpointStatus"] == "InService"
    seen = ask(cloud, "prefix", "environment")
    assert seen["files"] == {"a.json": "prefix/a.json", "b/c.bin": "prefix/b/c.bin"}
    base = Path(seen["environment"]["SAGEMAKER_BASE_DIR"])
    assert (base / "additional-model-data-sources/draft/adapter.bin").read_text() == "more/adapter.bin"
    cloud.delete("prefix")
    until(lambda: not base.exists())


@pytest.mark.parametrize(
    ("name", "environment", "variant", "said"),
    [
        ("exits", {"STUB_EXIT": "3"}, {}, "its process ended with status 3"),
        (
            "deaf",
            {"STUB_NEVER_HEALTHY": "1"},
            {"ContainerStartupHealthCheckTimeoutInSeconds": 60},
            "no ping was answered within 1 s",
        ),
    ],
)
def test_an_endpoint_that_does_not_start_fails_with_a_reason(
    cloud: Cloud, name: str, environment: dict[str, str], variant: dict[str, Any], said: str
) -> None:
    described = started(cloud, name, None, variant, **environment)
    assert described["EndpointStatus"] == "Failed"
    reason = described["FailureReason"]
    assert "The primary container for production variant AllTraffic did not pass the ping health check" in reason
    assert said in reason
    log = Path(reason.partition("its log is ")[2].rstrip(")"))
    assert log.exists()
    if name == "exits":  # The other may be ended before it has said anything.
        assert log.read_text().startswith("the stub ")
    with pytest.raises(ClientError, match="not found"):
        ask(cloud, name)
    with pytest.raises(ClientError, match="it is not in service"):
        cloud.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=name)
    cloud.delete(name)


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    ("name", "packed", "said"),
    [
        ("no-archive", b"not gzip", "it is not compressed by gzip"),
        ("cut", archive({"a": os.urandom(100_000)})[:50_000], "it is cut off or not a tar archive"),
        ("dots", archive({}, member("../outside")), "its member '../outside'"),
        ("absolute", archive({}, member("/tmp/outside")), "its member '/tmp/outside'"),
        ("symlink", archive({}, member("a", tarfile.SYMTYPE, "/etc")), "is a link"),
        ("hardlink", archive({}, member("a", tarfile.LNKTYPE, "/etc/passwd")), "is a link"),
        ("device", archive({}, member("a", tarfile.CHRTYPE)), "is a device"),
    ],
    ids=["no archive", "cut", "dots", "absolute", "symlink", "hardlink", "device"],
)
def test_an_archive_that_is_unsafe_or_broken_fails_the_endpoint(
    cloud: Cloud, name: str, packed: bytes, said: str
) -> None:
    cloud.s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed)
    described = started(cloud, name, {"ModelDataUrl": f"s3://models/{name}.tar.gz"})
    assert described["EndpointStatus"] == "Failed"
    assert "Failed to extract model data archive" in described["FailureReason"]
    assert said in described["FailureReason"]
    assert not list(cloud.service.state.rglob("outside"))
    cloud.delete(name)


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("folder", ("a/",), "can't be a file's path"),
        ("dots-key", ("../../outside",), "can't be a file's path"),
        ("clash", ("a", "a/b"), "both a file and a directory"),
    ],
)
def test_keys_that_are_no_paths_fail_the_endpoint(cloud: Cloud, name: str, keys: tuple[str, ...], said: str) -> None:
    for key in keys:
        cloud.s3.put_object(Bucket="models", Key=f"{name}/{key}", Body=b"")
    source = {"ModelDataSource": {"S3DataSource": {"S3Uri": f"s3://models/{name}/", **SOURCE}}}
    described = started(cloud, name, source)
    assert described["EndpointStatus"] == "Failed"
    assert said in described["FailureReason"]
    cloud.delete(name)


def test_model_data_that_is_gone_at_the_start_fails_the_endpoint(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket="models", Key="gone.tar.gz", Body=archive({}))
    cloud.model("gone", {"ModelDataUrl": "s3://models/gone.tar.gz"})
    cloud.config("gone", {"ModelName": "gone"})
    cloud.s3.delete_object(Bucket="models", Key="gone.tar.gz")
    assert cloud.endpoint("gone", "gone") == "Failed"
    assert "Failed to download" in cloud.settled("gone")["FailureReason"]
    cloud.delete("gone")


def test_an_endpoint_is_created_once_and_lists_by_status(cloud: Cloud) -> None:
    started(cloud, "once")
    for name in ("once", "Once"):
        with pytest.raises(ClientError, match=r"Cannot create already existing endpoint .*endpoint/once") as caught:
            cloud.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName="once")
        assert caught.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError, match="Could not find endpoint") as caught:
        cloud.sagemaker.describe_endpoint(EndpointName="never")
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    listed = cloud.sagemaker.list_endpoints(StatusEquals="InService", NameContains="once", SortBy="Status")
    assert [each["EndpointName"] for each in listed["Endpoints"]] == ["once"]
    assert cloud.sagemaker.list_endpoints(StatusEquals="Failed", NameContains="once")["Endpoints"] == []
    cloud.delete("once")
    with pytest.raises(ClientError, match="Could not find endpoint"):
        cloud.sagemaker.delete_endpoint(EndpointName="once")


def test_an_endpoint_is_neither_changed_nor_deleted_while_it_is_created(cloud: Cloud, tmp_path: Path) -> None:
    cloud.model("slow-start", STUB_READY_WITH=str(tmp_path / "ready"))
    cloud.config("slow-start", {"ModelName": "slow-start"})
    cloud.sagemaker.create_endpoint(EndpointName="slow-start", EndpointConfigName="slow-start")
    with pytest.raises(ClientError, match="not found"):
        ask(cloud, "slow-start")
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        cloud.sagemaker.update_endpoint(EndpointName="slow-start", EndpointConfigName="slow-start")
    with pytest.raises(ClientError, match="Cannot update in-progress endpoint"):
        cloud.sagemaker.delete_endpoint(EndpointName="slow-start")
    assert cloud.sagemaker.describe_endpoint(EndpointName="slow-start")["EndpointStatus"] == "Creating"
    (tmp_path / "ready").touch()
    assert cloud.settled("slow-start")["EndpointStatus"] == "InService"
    cloud.delete("slow-start")
