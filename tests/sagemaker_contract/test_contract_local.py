"""What the local SageMaker does to a container: as SageMaker's documents and the SDK's local mode spell it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from container.http.body_budget import max_body
from container.inference import websocket
from container.requests import deadline
from container.routes.execution_parameters import execution_parameters
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from local_sagemaker.gateway.container_connection import RuntimeLimits
from local_sagemaker.hosting.instances.host_settings import HostTiming
from local_sagemaker.hosting.transform_job import TIMEOUT_SECONDS, TransformJob, payloads
from tests.local_sagemaker.local_service import Cloud, archive, until

SAID = {
    "SAGEMAKER_BATCH",
    "SAGEMAKER_BATCH_STRATEGY",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",
}


def transformed(cloud: Cloud, name: str, body: bytes, **members: Any) -> tuple[dict[str, Any], bytes]:
    """A job over one object: what describes it at its end, and its output."""
    if not cloud.sagemaker.list_models(NameContains="contract-batch")["Models"]:
        cloud.model("contract-batch")
    cloud.s3.put_object(Bucket="models", Key=f"contract/{name}/in", Body=body)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://models/contract/{name}/in"}}
    asked = {
        "TransformJobName": name,
        "ModelName": "contract-batch",
        "TransformResources": {"InstanceType": "ml.inf2.xlarge", "InstanceCount": 1},
        **members,
        "TransformInput": {"DataSource": source, "SplitType": "Line", **members.get("TransformInput", {})},
        "TransformOutput": {"S3OutputPath": f"s3://models/contract/{name}/out", "AssembleWith": "Line"},
    }
    cloud.sagemaker.create_transform_job(**asked)

    def described() -> dict[str, Any]:
        found: dict[str, Any] = cloud.sagemaker.describe_transform_job(TransformJobName=name)
        return found

    until(lambda: described()["TransformJobStatus"] in ("Completed", "Failed"))
    if described()["TransformJobStatus"] == "Failed":
        return described(), b""
    return described(), cloud.s3.get_object(Bucket="models", Key=f"contract/{name}/out/in.out")["Body"].read()


# Seconds of the guide, and ours.
TIMES: dict[str, tuple[float, Callable[[], float]]] = {
    "SIGKILL": (30.0, lambda: HostTiming().kill_after),
    "ping": (2.0, lambda: HostTiming().ping_seconds),
    "start": (480.0, lambda: HostTiming().startup_seconds),
    "reply": (60.0, lambda: RuntimeLimits().regular_seconds),
    "stream": (480.0, lambda: RuntimeLimits().stream_seconds),
    "bidirectional ping": (60.0, lambda: websocket.PING_SECONDS),
}


@pytest.mark.parametrize("name", TIMES)
def test_time(name: str) -> None:
    said, ours = TIMES[name]
    assert ours() == said


def test_the_container_ends_its_work_before_sagemaker_does() -> None:
    """So that a client reads an error of the container's, and not SageMaker's."""
    config = EndpointConfig()
    assert deadline.REPLY_SECONDS < 60
    assert config.stream_deadline < 480
    assert config.drain < 30
    assert deadline.TRANSFORM_REPLY_SECONDS < TIMEOUT_SECONDS
    assert websocket.MISSED_PONGS == 5


# The members of CreateTransformJob -> the container's variables.
VARIABLES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "none is set": ({}, {"SAGEMAKER_BATCH": "true"}),
    "SingleRecord": ({"BatchStrategy": "SingleRecord"}, {"SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD"}),
    "MultiRecord": ({"BatchStrategy": "MultiRecord"}, {"SAGEMAKER_BATCH_STRATEGY": "MULTI_RECORD"}),
    "MaxPayloadInMB": ({"MaxPayloadInMB": 6}, {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "6"}),
    "MaxPayloadInMB 0": ({"MaxPayloadInMB": 0}, {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}),
    "MaxConcurrentTransforms": ({"MaxConcurrentTransforms": 8}, {"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "8"}),
    "MaxConcurrentTransforms 0": ({"MaxConcurrentTransforms": 0}, {"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "0"}),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_of_a_transform_job(cloud: Cloud, name: str) -> None:
    members, expected = VARIABLES[name]
    _, output = transformed(cloud, f"env-{list(VARIABLES).index(name)}", b'{"do": "environment"}\n', **members)
    found = json.loads(output)["environment"]
    assert {key: found[key] for key in SAID & found.keys()} == {"SAGEMAKER_BATCH": "true", **expected}


def test_each_valid_transform_job_is_one_that_the_container_takes() -> None:
    """400 jobs by chance, within the bounds and enumerations of botocore's model."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    strategies = [None, *model.shape_for("BatchStrategy").metadata["enum"]]
    for seed in range(400):
        chance = Random(seed)
        payload, strategy = chance.choice((None, 0, chance.randint(1, 100))), chance.choice(strategies)
        concurrent = chance.choice((None, 0, chance.randint(1, 100 // (payload or 1))))
        given = {"BatchStrategy": strategy, "MaxPayloadInMB": payload, "MaxConcurrentTransforms": concurrent}
        job = {"TransformJobName": "job", **{name: value for name, value in given.items() if value is not None}}
        transform = TransformJob(job, {}, None, None, lambda *_: None)  # type: ignore[arg-type]  # it is not started
        config = load(transform._batch())
        found = execution_parameters(config, 16, 1024)
        assert found["BatchStrategy"] == {"MultiRecord": "MULTI_RECORD"}.get(strategy, "SINGLE_RECORD"), seed
        assert 1 <= int(found["MaxConcurrentTransforms"]) * int(found["MaxPayloadInMB"]) <= 100, seed
        assert max_body(config) >= (payload or 0) << 20, seed


def test_records_lose_no_byte() -> None:
    """Joined, the payloads of an object are the object, whatever its lines are."""
    for seed in range(400):
        chance = Random(seed)
        body = bytes(chance.choice(b"ab\n\r") for _ in range(chance.randint(1, 60)))
        for strategy, most in (("SingleRecord", 0), ("MultiRecord", 61), ("MultiRecord", 0)):
            cut = list(payloads(body, "Line", strategy, most))
            assert b"".join(cut) == body, (seed, strategy)
            assert all(part.count(b"\n") <= 1 for part in cut) or strategy == "MultiRecord", seed


def test_each_reply_of_a_transform_job_gets_a_newline(cloud: Cloud) -> None:
    """`f.write(data)` and `f.write(b"\\n")`, whatever data ends in. This reply ends in a newline of its own."""
    _, output = transformed(cloud, "assembled", b'{"do": "newline"}\n{"do": "newline"}\n', BatchStrategy="SingleRecord")
    assert output == b"{}\n\n{}\n\n"
    cloud.s3.head_object(Bucket="models", Key="contract/assembled/out/in.out")


def test_empty_lines_of_a_transform_job_are_sent(cloud: Cloud) -> None:
    _, output = transformed(cloud, "empty-lines", b'{"a": 1}\n\n{"a": 2}', BatchStrategy="SingleRecord")
    assert [json.loads(line)["body"] for line in output.splitlines()] == ['{"a": 1}\n', "\n", '{"a": 2}']
    _, output = transformed(cloud, "empty-many", b'{"a": 1}\n\n{"a": 2}\n', BatchStrategy="MultiRecord")
    assert [json.loads(line)["body"] for line in output.splitlines()] == ['{"a": 1}\n\n{"a": 2}\n']


@pytest.mark.parametrize("kind", [None, "application/jsonlines"])
def test_a_transform_job_sends_the_content_type_that_it_has(cloud: Cloud, kind: str | None) -> None:
    given = {"ContentType": kind} if kind else {}
    _, output = transformed(cloud, f"type-{bool(kind)}".lower(), b'{"a": 1}\n', TransformInput=given)
    assert json.loads(output)["headers"].get("content-type") == kind


def test_a_payload_of_0_is_chunked_and_of_any_size(cloud: Cloud) -> None:
    """The stub's own wish is a payload of 1 MB."""
    record = b'{"a": "%b"}\n' % (b"x" * 2_000_000)
    done, output = transformed(cloud, "chunked", record, MaxPayloadInMB=0, BatchStrategy="SingleRecord")
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    headers = json.loads(output)["headers"]
    assert headers["transfer-encoding"] == "chunked"
    assert "content-length" not in headers


@pytest.mark.parametrize(("said", "status"), [("MULTI_RECORD", "Completed"), ("MultiRecord", "Failed")])
def test_a_containers_strategy_is_spelled_as_the_guide_spells_it(cloud: Cloud, said: str, status: str) -> None:
    environment = {"STUB_BATCH_STRATEGY": said}
    done, output = transformed(cloud, f"said-{status.lower()}", b"{}\n{}\n", Environment=environment)
    assert done["TransformJobStatus"] == status
    assert output.count(b"\n") == (1 if status == "Completed" else 0), "both lines are in one payload"


def test_a_transform_job_has_no_trn2(cloud: Cloud) -> None:
    with pytest.raises(ClientError, match="enum value set"):
        transformed(cloud, "trn2", b"{}\n", TransformResources={"InstanceType": "ml.trn2.48xlarge", "InstanceCount": 1})


@pytest.mark.parametrize(
    ("instance", "said"),
    [("ml.m5.xlarge", ""), ("ml.inf2.xlarge", "not supported"), ("ml.trn2.48xlarge", "not supported")],
)
def test_multi_model_endpoints_have_no_neuron_cores(cloud: Cloud, instance: str, said: str) -> None:
    name = f"mme-{instance.split('.')[1]}"
    cloud.s3.put_object(Bucket="models", Key="mme/a.tar.gz", Body=archive({"name": b"a"}))
    cloud.model(name, {"Mode": "MultiModel", "ModelDataUrl": "s3://models/mme/"})
    if not said:
        assert cloud.config(name, {"ModelName": name, "InstanceType": instance}) == name
        return
    with pytest.raises(ClientError, match=said):
        cloud.config(name, {"ModelName": name, "InstanceType": instance})


@pytest.fixture(scope="module")
def many(cloud: Cloud) -> Iterator[str]:
    """A multi-model endpoint. The service's times are 60 times as short: a load may take 6 s, a request waits 1 s."""
    cloud.s3.put_object(Bucket="models", Key="load/slow.tar.gz", Body=archive({"slow": b"1.5", "name": b"slow"}))
    cloud.s3.put_object(Bucket="models", Key="load/late.tar.gz", Body=archive({"slow": b"7.5", "name": b"late"}))
    cloud.model("loads", {"Mode": "MultiModel", "ModelDataUrl": "s3://models/load/"})
    cloud.config("loads", {"ModelName": "loads", "InstanceType": "ml.m5.xlarge"})
    cloud.endpoint("loads", "loads")
    yield "loads"
    cloud.delete("loads")


@pytest.mark.slow
def test_a_model_that_loads_for_60_seconds_is_not_ready_and_for_360_fails(cloud: Cloud, many: str) -> None:
    assert (HostTiming().target_model_patience, HostTiming().target_model_load) == (60.0, 360.0)

    def ask(target: str) -> str:
        try:
            cloud.runtime.invoke_endpoint(EndpointName=many, TargetModel=target, Body=b"{}")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""

    for target, end in (("slow.tar.gz", ""), ("late.tar.gz", "ModelError")):
        assert ask(target) == "ModelNotReadyException"
        while (said := ask(target)) == "ModelNotReadyException":
            time.sleep(0.05)
        assert said == end


@pytest.fixture(scope="module")
def queue(cloud: Cloud) -> Iterator[str]:
    cloud.model("contract-queue")
    output = {"S3OutputPath": "s3://models/contract/out/", "S3FailurePath": "s3://models/contract/failed/"}
    cloud.config("contract-queue", {"ModelName": "contract-queue"}, AsyncInferenceConfig={"OutputConfig": output})
    cloud.endpoint("contract-queue", "contract-queue")
    yield "contract-queue"
    cloud.delete("contract-queue")


@pytest.mark.parametrize(("size", "fails"), [(4096, True), (3000, False)])
def test_reply_headers_above_4096_bytes_fail_an_asynchronous_request(
    cloud: Cloud, queue: str, size: int, fails: bool
) -> None:
    body = json.dumps({"do": "header", "size": size}).encode()
    places = cloud.runtime.invoke_endpoint_async(EndpointName=queue, Body=body)

    def there(location: str) -> bytes | None:
        try:
            found: bytes = cloud.s3.get_object(Bucket="models", Key=location.removeprefix("s3://models/"))[
                "Body"
            ].read()
            return found
        except ClientError:
            return None

    location = places["FailureLocation" if fails else "OutputLocation"]
    until(lambda: there(location) is not None)
    said = "has headers with length greater than 4096 bytes" if fails else "{}"
    assert said in (there(location) or b"").decode()
