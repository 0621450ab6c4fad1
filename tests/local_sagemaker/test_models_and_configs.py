"""Models, endpoint configurations and tags: what SageMaker accepts, and what it says where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from handler.processes import free_port
from local_sagemaker.control.control_errors import InternalFailure
from local_sagemaker.control.models import ModelDocuments
from local_sagemaker.control.registry import Registry
from local_sagemaker.hosting.instances.s3_access import Objects
from tests.local_sagemaker.local_service import ROLE, Cloud

ARN = "arn:aws:sagemaker:us-east-1:123456789012"
PREFIX = {"S3DataSource": {"S3Uri": "s3://models/p/", "S3DataType": "S3Prefix", "CompressionType": "None"}}


def refused(call: Any, code: str = "ValidationException", **members: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**members)
    assert caught.value.response["Error"]["Code"] == code
    message: str = caught.value.response["Error"]["Message"]
    return message


def test_a_model_is_described_as_it_was_created(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket="models", Key="described.tar.gz", Body=b"")
    container = {"Image": "stub", "ModelDataUrl": "s3://models/described.tar.gz", "Environment": {"A": "b"}}
    created = cloud.sagemaker.create_model(ModelName="described", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    assert created["ModelArn"] == f"{ARN}:model/described"
    described = cloud.sagemaker.describe_model(ModelName="described")
    assert described["PrimaryContainer"] == container
    assert described["ExecutionRoleArn"] == ROLE
    cloud.sagemaker.delete_model(ModelName="described")
    for call in (cloud.sagemaker.describe_model, cloud.sagemaker.delete_model):
        assert refused(call, ModelName="described") == f'Could not find model "{ARN}:model/described".'


def test_a_model_is_created_once(cloud: Cloud) -> None:
    cloud.model("twice")
    said = refused(cloud.model, name="twice")
    assert said == f'Cannot create already existing model "{ARN}:model/twice".'


def test_s3_that_cannot_be_reached_is_not_called_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    port = free_port()
    s3 = Objects(f"http://127.0.0.1:{port}", "us-east-1")
    models = ModelDocuments(Registry(), s3)
    for container in ({"ModelDataUrl": "s3://models/x.tar.gz"}, {"ModelDataSource": PREFIX}):
        with pytest.raises(InternalFailure, match=f"^s3://models/.* can't be looked up: Could not connect .*:{port}/"):
            models.create({"ModelName": "unknown", "PrimaryContainer": {"Image": "stub", **container}})


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"Environment": {"A": "x" * 1025}}, "Member must have length less than or equal to 1024"),
        ({"Environment": {f"A{n}": "" for n in range(101)}}, "Member must have length less than or equal to 100"),
        ({"Environment": {f"A{n}": "x" * 1000 for n in range(40)}}, "Environment has"),
        ({"Environment": {"1A": "b"}}, "Member must satisfy regular expression pattern"),
        ({"Image": "a name with spaces"}, "Value 'a name with spaces' at 'primaryContainer.image'"),
        ({"ModelDataUrl": "ftp://models/x"}, "Member must satisfy regular expression pattern"),
        ({"ModelDataUrl": "s3://models/nothing.tar.gz"}, "Could not find model data at s3://models/nothing.tar.gz."),
        ({"ModelDataUrl": "s3://models/x", "ModelDataSource": PREFIX}, "must not both be given"),
        ({"ModelDataSource": PREFIX}, "Could not find model data at s3://models/p/."),
        ({"ModelDataUrl": "s3://no-bucket/x.tar.gz"}, "Could not find model data at s3://no-bucket/x.tar.gz."),
        (
            {"ModelDataSource": {"S3DataSource": {**PREFIX["S3DataSource"], "S3Uri": "s3://no-bucket/p/"}}},
            "Could not find model data at s3://no-bucket/p/.",
        ),
        ({"ModelDataSource": {}}, "must have S3DataSource"),
        (
            {"ModelDataSource": {"S3DataSource": {**PREFIX["S3DataSource"], "S3Uri": "s3://models/p"}}},
            "must end with a forward slash",
        ),
        (
            {"ModelDataSource": {"S3DataSource": {**PREFIX["S3DataSource"], "S3DataType": "S3Object"}}},
            "must not end with a forward slash",
        ),
        (
            {"ModelDataSource": {"S3DataSource": {**PREFIX["S3DataSource"], "CompressionType": "Gzip"}}},
            "needs S3DataType S3Object",
        ),
        (
            {"ModelDataSource": {"S3DataSource": {**PREFIX["S3DataSource"], "ManifestS3Uri": "s3://models/manifest"}}},
            "ManifestS3Uri is not supported",
        ),
        ({"AdditionalModelDataSources": [{"ChannelName": "..", **PREFIX}]}, "a directory's name of its own"),
        ({"AdditionalModelDataSources": [{"ChannelName": "a", **PREFIX}] * 2}, "a directory's name of its own"),
        ({"Mode": "Sideways"}, "Member must satisfy enum value set: [SingleModel, MultiModel]"),
    ],
)
def test_a_container_keeps_to_the_documented_limits(cloud: Cloud, container: dict[str, Any], said: str) -> None:
    assert said in refused(
        cloud.sagemaker.create_model,
        ModelName="wrong",
        PrimaryContainer={"Image": "stub", **container},
        ExecutionRoleArn=ROLE,
    )
    refused(cloud.sagemaker.describe_model, ModelName="wrong")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"ModelName": "a_b"}, "Value 'a_b' at 'modelName' failed to satisfy constraint"),
        ({"ModelName": "../../escape"}, "Member must satisfy regular expression pattern"),
        ({"ModelName": "a" * 64}, "Member must have length less than or equal to 63"),
        ({}, "Value 'null' at 'modelName' failed to satisfy constraint: Member must not be null"),
        ({"ModelName": "m", "ExecutionRoleArn": "me"}, "2 validation errors detected"),
        ({"ModelName": "m"}, "Exactly one of PrimaryContainer and Containers"),
        ({"ModelName": "m", "Containers": [{"Image": "stub"}] * 2}, "several containers is not supported"),
        ({"ModelName": "m", "PrimaryContainer": {"ModelPackageName": "p"}}, "Image must be given"),
    ],
)
def test_a_models_members_are_checked(cloud: Cloud, members: dict[str, Any], said: str) -> None:
    assert said in refused(cloud.sagemaker.create_model, **members)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"ModelName": 3}, "SerializationException", "modelName must be a string, not int"),
        ({"ModelName": "m", "PrimaryContainer": []}, "SerializationException", "must be a structure, not list"),
        ({"ModelName": "m", "Containers": {}}, "SerializationException", "must be a list, not dict"),
        ({"ModelName": "m", "EnableNetworkIsolation": 1}, "SerializationException", "must be a boolean, not int"),
        ({"ModelName": "m", "Nonsense": 1}, "ValidationException", "Unknown member 'Nonsense'"),
        ({"ModelName": "m", "PrimaryContainer": {"Imag": ""}}, "ValidationException", "Unknown member 'Imag'"),
    ],
)
def test_what_boto3_would_not_send_is_refused_too(cloud: Cloud, body: dict[str, Any], code: str, said: str) -> None:
    reply = httpx.post(cloud.service.url, json=body, headers={"X-Amz-Target": "SageMaker.CreateModel"})
    assert (reply.status_code, reply.json()["__type"]) == (400, code)
    assert said in reply.json()["message"]


def test_a_body_that_is_no_json_is_a_serialization_exception(cloud: Cloud) -> None:
    for body in (b"{", b"[]", b"[" * 100_000):
        headers = {"X-Amz-Target": "SageMaker.CreateModel"}
        reply = httpx.post(cloud.service.url, content=body, headers=headers)
        assert (reply.status_code, reply.json()["__type"]) == (400, "SerializationException")


def test_an_unknown_operation_is_answered_as_sagemaker_does(cloud: Cloud) -> None:
    refused(cloud.sagemaker.create_training_job, "UnknownOperationException", TrainingJobName="t")
    for target in ("SageMaker.Nonsense", "Other.CreateModel", ""):
        reply = httpx.post(cloud.service.url, content=b"{}", headers={"X-Amz-Target": target})
        assert (reply.status_code, reply.json()["__type"]) == (400, "UnknownOperationException")
        assert reply.headers["content-type"] == "application/x-amz-json-1.1"
    for request in ("GET /", "GET /endpoints", "POST /nonsense", "PUT /endpoints/e/invocations"):
        method, _, path = request.partition(" ")
        reply = httpx.request(method, cloud.service.url + path)
        assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (404, "UnknownOperationException")


def test_lists_are_filtered_sorted_and_paged(cloud: Cloud) -> None:
    for number in range(5):
        cloud.model(f"listed-{number}")

    def names(**asked: Any) -> list[str]:
        pages = cloud.sagemaker.get_paginator("list_models").paginate(NameContains="listed", **asked)
        return [model["ModelName"] for page in pages for model in page["Models"]]

    assert names(SortBy="Name", SortOrder="Ascending") == [f"listed-{number}" for number in range(5)]
    assert names(SortBy="Name", PaginationConfig={"PageSize": 2})[0] == "listed-4"
    assert len(names(PaginationConfig={"PageSize": 2})) == 5
    created = cloud.sagemaker.describe_model(ModelName="listed-2")["CreationTime"]
    assert "listed-4" not in names(CreationTimeBefore=created)
    assert "listed-2" in names(CreationTimeBefore=created)
    assert "Invalid NextToken" in refused(cloud.sagemaker.list_models, NextToken="bm9uc2Vuc2U=")
    assert "less than or equal to 100" in refused(cloud.sagemaker.list_models, MaxResults=101)


def test_an_endpoint_configuration_is_described_as_it_was_created(cloud: Cloud) -> None:
    cloud.model("of-config")
    cloud.config("config-1", {"ModelName": "of-config"}, Tags=[{"Key": "team", "Value": "a"}])
    described = cloud.sagemaker.describe_endpoint_config(EndpointConfigName="config-1")
    assert described["EndpointConfigArn"] == f"{ARN}:endpoint-config/config-1"
    assert described["ProductionVariants"][0]["ModelName"] == "of-config"
    listed = cloud.sagemaker.list_endpoint_configs(NameContains="config-1")["EndpointConfigs"]
    assert [each["EndpointConfigName"] for each in listed] == ["config-1"]
    assert "Cannot create already existing endpoint configuration" in refused(
        cloud.sagemaker.create_endpoint_config,
        EndpointConfigName="config-1",
        ProductionVariants=described["ProductionVariants"],
    )
    cloud.sagemaker.delete_endpoint_config(EndpointConfigName="config-1")
    missing = f'Could not find endpoint configuration "{ARN}:endpoint-config/config-1".'
    for call in (cloud.sagemaker.describe_endpoint_config, cloud.sagemaker.delete_endpoint_config):
        assert refused(call, EndpointConfigName="config-1") == missing
    assert refused(cloud.sagemaker.create_endpoint, EndpointName="e", EndpointConfigName="config-1") == missing


SCALING = {"Status": "ENABLED", "MinInstanceCount": 3, "MaxInstanceCount": 2}


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ({"ModelName": "missing"}, "Could not find model"),
        ({"InitialInstanceCount": 0}, "greater than or equal to 1"),
        ({"InitialInstanceCount": None}, "InitialInstanceCount must be given"),
        ({"InstanceType": "ml.imaginary"}, "Member must satisfy enum value set"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 59}, "greater than or equal to 60"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 3601}, "less than or equal to 3600"),
        ({"ModelDataDownloadTimeoutInSeconds": 59}, "greater than or equal to 60"),
        ({"InitialVariantWeight": 0}, "a weight above 0"),
        ({"InitialVariantWeight": -1}, "greater than or equal to 0"),
        ({"VariantName": "a_b"}, "productionVariants.1.member.variantName"),
        ({"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "ServerlessConfig is not supported"),
        ({"ModelName": None}, "ExecutionRoleArn must be given"),
        (
            {"InstanceType": "ml.trn1.32xlarge", "VolumeSizeInGB": 100},
            "VolumeSizeInGB can't be given for ml.trn1.32xlarge",
        ),
        (
            {"InstanceType": "ml.p4d.24xlarge", "VolumeSizeInGB": 100},
            "VolumeSizeInGB can't be given for ml.p4d.24xlarge",
        ),
        ({"ManagedInstanceScaling": SCALING}, "only supported for inference component endpoints"),
        ({"ManagedInstanceScaling": SCALING, "ModelName": None}, "MinInstanceCount must not exceed MaxInstanceCount"),
    ],
)
def test_a_variant_keeps_to_the_documented_limits(cloud: Cloud, variant: dict[str, Any], said: str) -> None:
    if "of-variant" not in str(cloud.sagemaker.list_models(NameContains="of-variant")["Models"]):
        cloud.model("of-variant")
    assert said in refused(lambda **each: cloud.config("wrong", each), **{"ModelName": "of-variant", **variant})


def test_variants_have_names_of_their_own(cloud: Cloud) -> None:
    cloud.model("of-two")
    assert "VariantName of its own" in refused(
        lambda: cloud.config("wrong", {"ModelName": "of-two"}, {"ModelName": "of-two"})
    )


def test_tags_are_added_listed_and_deleted(cloud: Cloud) -> None:
    cloud.sagemaker.create_model(
        ModelName="tagged", PrimaryContainer={"Image": "stub"}, Tags=[{"Key": "a", "Value": "1"}]
    )
    arn = f"{ARN}:model/tagged"
    cloud.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "2"}, {"Key": "größe", "Value": ""}])
    tags = cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "a", "Value": "2"}, {"Key": "größe", "Value": ""}]
    cloud.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["a", "never"])
    assert [tag["Key"] for tag in cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"]] == ["größe"]
    many = [{"Key": f"k{number}", "Value": ""} for number in range(50)]
    assert "at most 50 tags" in refused(cloud.sagemaker.add_tags, ResourceArn=arn, Tags=many)
    assert "at 'tags.1.member.key'" in refused(
        cloud.sagemaker.add_tags, ResourceArn=arn, Tags=[{"Key": "a*", "Value": ""}]
    )
    cloud.sagemaker.delete_model(ModelName="tagged")
    for call, more in (
        (cloud.sagemaker.add_tags, {"Tags": []}),
        (cloud.sagemaker.list_tags, {}),
        (cloud.sagemaker.delete_tags, {"TagKeys": ["a"]}),
    ):
        assert "Could not find resource" in refused(call, ResourceArn=arn, **more)
