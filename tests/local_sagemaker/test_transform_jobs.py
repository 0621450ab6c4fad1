"""Batch transform jobs over objects in S3."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_sagemaker.hosting.transform_job import JobFailed, execution_parameters
from tests.local_sagemaker.local_service import Cloud, until

PREFIX = {"S3DataType": "S3Prefix", "CompressionType": "None"}
RESOURCES = {"InstanceType": "ml.inf2.xlarge", "InstanceCount": 1}


def job(cloud: Cloud, name: str, objects: dict[str, bytes], **members: Any) -> dict[str, Any]:
    """A job over the objects, and how it has ended."""
    for key, body in objects.items():
        cloud.s3.put_object(Bucket="models", Key=f"jobs/{name}/in/{key}", Body=body)
    create(cloud, name, **members)
    return ended(cloud, name)


def create(cloud: Cloud, name: str, **members: Any) -> None:
    if not any(each["ModelName"] == "batch" for each in cloud.sagemaker.list_models(NameContains="batch")["Models"]):
        cloud.model("batch")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://models/jobs/{name}/in/"}}
    asked = {
        "TransformJobName": name,
        "ModelName": "batch",
        "TransformResources": RESOURCES,
        **members,
        "TransformInput": {"DataSource": source, "SplitType": "Line", **members.get("TransformInput", {})},
        "TransformOutput": {
            "S3OutputPath": f"s3://models/jobs/{name}/out",
            "AssembleWith": "Line",
            **members.get("TransformOutput", {}),
        },
    }
    cloud.sagemaker.create_transform_job(**asked)


def ended(cloud: Cloud, name: str) -> dict[str, Any]:
    def status() -> str:
        return str(cloud.sagemaker.describe_transform_job(TransformJobName=name)["TransformJobStatus"])

    until(lambda: status() in ("Completed", "Failed", "Stopped"))
    described: dict[str, Any] = cloud.sagemaker.describe_transform_job(TransformJobName=name)
    return described


def output(cloud: Cloud, name: str, key: str) -> list[dict[str, Any]]:
    body = cloud.s3.get_object(Bucket="models", Key=f"jobs/{name}/out/{key}.out")["Body"].read()
    return [json.loads(line) for line in body.splitlines()]


def jsonl(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def start_of_a_long_answer(cloud: Cloud, name: str, directory: Path) -> Path:
    """A job whose container answers after ten minutes; it makes the returned file when it begins."""
    begun = directory / "begun"
    record = {"do": "wait", "seconds": 600, "begun": str(begun)}
    cloud.s3.put_object(Bucket="models", Key=f"jobs/{name}/in/a", Body=jsonl(record))
    create(cloud, name, ModelClientConfig={"InvocationsMaxRetries": 0})
    return begun


def test_each_record_has_its_answer_in_its_place(cloud: Cloud) -> None:
    records = [{"do": "wait", "seconds": 0.05 * (number % 3), "number": number} for number in range(9)]
    objects = {"a.jsonl": jsonl(*records), "deep/b.jsonl": jsonl({"number": 9}) + b"\n\n"}
    told = {"ContentType": "application/jsonlines"}
    done = job(cloud, "each", objects, BatchStrategy="SingleRecord", MaxConcurrentTransforms=4, TransformInput=told)
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    answers = output(cloud, "each", "a.jsonl")
    assert [json.loads(answer["body"])["number"] for answer in answers] == list(range(9))
    assert {answer["headers"]["content-type"] for answer in answers} == {"application/jsonlines"}
    assert [each["body"] for each in output(cloud, "each", "deep/b.jsonl")] == [
        jsonl({"number": 9}).decode(),
        "\n",
        "\n",
    ]
    assert done["TransformEndTime"] >= done["TransformStartTime"]
    listed = cloud.sagemaker.list_transform_jobs(NameContains="each", StatusEquals="Completed")
    assert [each["TransformJobName"] for each in listed["TransformJobSummaries"]] == ["each"]


def test_several_records_fill_a_payload(cloud: Cloud) -> None:
    records = jsonl(*({"number": number, "padding": "x" * 400_000} for number in range(5)))
    done = job(cloud, "several", {"a": records}, BatchStrategy="MultiRecord", MaxPayloadInMB=1)
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    counts = [len(answer["body"].splitlines()) for answer in output(cloud, "several", "a")]
    assert counts == [2, 2, 1]


def test_a_container_says_what_a_job_leaves_open(cloud: Cloud) -> None:
    """The stub's /execution-parameters: SINGLE_RECORD, payloads of 1 MB."""
    done = job(cloud, "open", {"a": jsonl({}, {})})
    assert done["TransformJobStatus"] == "Completed"
    assert len(output(cloud, "open", "a")) == 2
    failed = job(cloud, "open-long", {"a": b'{"padding": "%b"}\n' % (b"x" * 1_100_000)})
    assert "longer than MaxPayloadInMB (1 MB)" in failed["FailureReason"]


def test_whole_and_compressed_objects(cloud: Cloud) -> None:
    body = gzip.compress(b"one\ntwo\n")
    given = {"SplitType": "None", "CompressionType": "Gzip"}
    done = job(cloud, "whole", {"a.gz": body}, TransformInput=given, TransformOutput={"AssembleWith": "None"})
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    assert output(cloud, "whole", "a.gz")[0]["body"] == "one\ntwo\n"
    failed = job(cloud, "no-gzip", {"a.gz": b"plain"}, TransformInput=given)
    assert "is not a valid gzip object" in failed["FailureReason"]


def test_the_jobs_environment_reaches_the_container(cloud: Cloud) -> None:
    members = {"Environment": {"OF_THE_JOB": "1"}, "BatchStrategy": "SingleRecord", "MaxConcurrentTransforms": 3}
    job(cloud, "environment", {"a": jsonl({"do": "environment"})}, MaxPayloadInMB=2, **members)
    (told,) = output(cloud, "environment", "a")
    expected = {
        "OF_THE_JOB": "1",
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2",
    }
    assert expected.items() <= told["environment"].items()


def test_a_failure_is_tried_again_as_often_as_it_is_said(cloud: Cloud, tmp_path: Path) -> None:
    for name, retries, status in (("tried", 3, "Completed"), ("given-up", 1, "Failed")):
        flaky = {"do": "flaky", "times": 2, "count": str(tmp_path / name)}
        done = job(cloud, name, {"a": jsonl(flaky)}, ModelClientConfig={"InvocationsMaxRetries": retries})
        assert done["TransformJobStatus"] == status
    assert "the container answered 500" in done["FailureReason"]
    assert (tmp_path / "given-up").read_text() == "2"


def test_what_a_container_refuses_is_not_tried_again(cloud: Cloud) -> None:
    done = job(cloud, "refused", {"a": jsonl({"do": "fail", "status": 400})})
    assert done["TransformJobStatus"] == "Failed"
    assert 'the container answered 400: {"error": "as asked"}' in done["FailureReason"]


def test_an_object_that_fails_leaves_the_others_their_outputs(cloud: Cloud) -> None:
    refused = jsonl({"do": "fail", "status": 400})
    objects = {"1": jsonl({}), "2": refused, "3": b'{"padding": "%b"}\n' % (b"x" * 1_100_000), "4": jsonl({})}
    done = job(cloud, "partly", objects)
    assert done["TransformJobStatus"] == "Failed"
    assert "the container answered 400" in done["FailureReason"]
    written = cloud.s3.list_objects_v2(Bucket="models", Prefix="jobs/partly/out/")["Contents"]
    assert [each["Key"] for each in written] == ["jobs/partly/out/1.out", "jobs/partly/out/4.out"]


def test_a_container_that_dies_is_replaced_and_the_payload_tried_again(cloud: Cloud) -> None:
    done = job(cloud, "dies-in-job", {"a": jsonl({"do": "die"})}, ModelClientConfig={"InvocationsMaxRetries": 1})
    assert "the container did not answer" in done["FailureReason"]


def test_a_job_without_input_or_whose_container_does_not_start_fails(cloud: Cloud) -> None:
    assert "No objects were found at" in job(cloud, "empty", {})["FailureReason"]
    failed = job(cloud, "no-start", {"a": jsonl({})}, Environment={"STUB_EXIT": "1"})
    assert "did not pass the ping health check" in failed["FailureReason"]


def test_a_job_can_be_stopped(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket="models", Key="jobs/stopped/in/a", Body=jsonl(*[{"do": "wait", "seconds": 0.1}] * 500))
    create(cloud, "stopped", BatchStrategy="SingleRecord")
    cloud.sagemaker.stop_transform_job(TransformJobName="stopped")
    assert cloud.sagemaker.describe_transform_job(TransformJobName="stopped")["TransformJobStatus"] in (
        "Stopping",
        "Stopped",
    )
    assert ended(cloud, "stopped")["TransformJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="in status Stopped"):
        cloud.sagemaker.stop_transform_job(TransformJobName="stopped")


def test_a_job_whose_container_is_answering_can_be_stopped(cloud: Cloud, tmp_path: Path) -> None:
    begun = start_of_a_long_answer(cloud, "long", tmp_path)
    until(begun.exists)
    cloud.sagemaker.stop_transform_job(TransformJobName="long")
    assert ended(cloud, "long")["TransformJobStatus"] == "Stopped"


def test_what_is_not_there_or_there_already(cloud: Cloud) -> None:
    job(cloud, "taken", {"a": jsonl({})})
    for code, call in (
        ("ResourceInUse", lambda: create(cloud, "taken")),
        ("ResourceNotFound", lambda: create(cloud, "no-model", ModelName="never")),
        ("ResourceNotFound", lambda: cloud.sagemaker.describe_transform_job(TransformJobName="never")),
        ("ResourceNotFound", lambda: cloud.sagemaker.stop_transform_job(TransformJobName="never")),
    ):
        with pytest.raises(ClientError) as caught:
            call()
        assert caught.value.response["Error"]["Code"] == code


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"MaxPayloadInMB": 101}, "must not exceed 100 MB"),
        ({"MaxPayloadInMB": 50, "MaxConcurrentTransforms": 3}, "must not exceed 100 MB"),
        ({"TransformInput": {"SplitType": "RecordIO"}}, "SplitType RecordIO is not supported"),
        ({"TransformInput": {"SplitType": "None"}, "BatchStrategy": "MultiRecord"}, "needs a SplitType"),
        ({"Environment": {"a": "x" * 10_241}}, "less than or equal to 10240"),
        ({"ModelClientConfig": {"InvocationsMaxRetries": 4}}, "less than or equal to 3"),
        ({"DataProcessing": {"JoinSource": "Input"}}, "DataProcessing is not supported"),
        ({"TransformResources": {**RESOURCES, "InstanceCount": 0}}, "greater than or equal to 1"),
    ],
)
def test_a_jobs_members_are_checked(cloud: Cloud, members: dict[str, Any], said: str) -> None:
    with pytest.raises(ClientError, match=said) as caught:
        create(cloud, "wrong", **members)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


@pytest.mark.parametrize(
    ("kind", "container", "said"),
    [
        (
            "prefix",
            {"ModelDataSource": {"S3DataSource": {"S3Uri": "s3://models/package/", **PREFIX}}},
            "doesn't support Model entity with container definitions which use ModelDataSource attribute",
        ),
        ("multi", {"Mode": "MultiModel", "ModelDataUrl": "s3://models/package/"}, "a MultiModel container"),
    ],
)
def test_a_model_that_batch_transform_does_not_take_is_refused(
    cloud: Cloud, kind: str, container: dict[str, Any], said: str
) -> None:
    """A prefix is what `deploy` gives to the models of endpoints."""
    cloud.s3.put_object(Bucket="models", Key="package/config.json", Body=b"{}")
    cloud.model(f"of-{kind}", container)
    with pytest.raises(ClientError, match=said) as caught:
        create(cloud, f"of-{kind}", ModelName=f"of-{kind}")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


@pytest.mark.parametrize("value", ['"four"', "-1", "null", "1e400", "[1]", "true"])
@pytest.mark.parametrize("name", ["MaxConcurrentTransforms", "MaxPayloadInMB"])
def test_a_number_of_the_container_that_is_none_fails_the_job(name: str, value: str) -> None:
    instance: Any = SimpleNamespace(send=lambda *_: (200, f'{{"{name}": {value}}}'.encode()))
    with pytest.raises(JobFailed, match=f"The container's {name} .* is not a whole number"):
        execution_parameters(instance)


@pytest.mark.parametrize("reply", [b"", b"[]", b"[" * 100_000])
def test_execution_parameters_are_optional(reply: bytes) -> None:
    instance: Any = SimpleNamespace(send=lambda *_: (200, reply))
    assert execution_parameters(instance) == {}
