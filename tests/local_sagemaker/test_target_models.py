"""Multi-model endpoints: models that come and go as they are asked for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_sagemaker.local_service import ROLE, Cloud, archive, until


@pytest.fixture(scope="module")
def many(cloud: Cloud) -> Iterator[str]:
    for name in ("a", "b", "c"):
        cloud.s3.put_object(Bucket="models", Key=f"many/{name}.tar.gz", Body=archive({"name": name.encode()}))
    for key, files in (("bad", {"bad": b""}), ("slow", {"slow": b"7", "name": b"slow"})):
        cloud.s3.put_object(Bucket="models", Key=f"many/{key}.tar.gz", Body=archive(files))
    cloud.s3.put_object(Bucket="models", Key="many/broken.tar.gz", Body=b"broken")
    cloud.model("many", {"Mode": "MultiModel", "ModelDataUrl": "s3://models/many/"})
    cloud.config("many", {"ModelName": "many", "InstanceType": "ml.m5.xlarge"})
    assert cloud.endpoint("many", "many") == "InService"
    yield "many"
    cloud.delete("many")


def ask(cloud: Cloud, target: str, **body: Any) -> dict[str, Any]:
    reply = cloud.runtime.invoke_endpoint(EndpointName="many", TargetModel=target, Body=json.dumps(body).encode())
    answer: dict[str, Any] = json.loads(reply["Body"].read())
    return answer


def test_models_are_loaded_when_asked_for_and_make_room(cloud: Cloud, many: str) -> None:
    assert (ask(cloud, "a.tar.gz")["model"], ask(cloud, "b.tar.gz")["model"]) == ("a", "b")
    assert ask(cloud, "a.tar.gz")["models"] == ["a", "b"]
    told = ask(cloud, "c.tar.gz")
    assert (told["model"], told["models"]) == ("c", ["a", "c"])
    assert ask(cloud, "b.tar.gz")["model"] == "b"
    environment = ask(cloud, "b.tar.gz", do="environment")["environment"]
    assert environment["SAGEMAKER_MULTI_MODEL"] == "true"


def test_a_replacement_loads_them_again(cloud: Cloud, many: str) -> None:
    pid = ask(cloud, "a.tar.gz")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: all(each["pid"] != pid and each["state"] == "Healthy" for each in cloud.instances(many)))
    told = ask(cloud, "a.tar.gz")
    assert (told["model"], told["models"]) == ("a", ["a"])


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("never.tar.gz", "ValidationError", "Failed to download the target model"),
        ("broken.tar.gz", "ValidationError", "it is not compressed by gzip"),
        ("../start.tar.gz", "ValidationError", "is not the path of a model"),
        ("bad.tar.gz", "ModelError", "no such architecture"),
        ("slow.tar.gz", "ModelNotReadyException", "still being downloaded or loaded"),
    ],
)
@pytest.mark.slow
def test_a_model_that_cannot_be_had(cloud: Cloud, many: str, target: str, code: str, said: str) -> None:
    with pytest.raises(ClientError, match=said) as caught:
        ask(cloud, target)
    assert caught.value.response["Error"]["Code"] == code


def test_a_target_model_must_be_given(cloud: Cloud, many: str) -> None:
    with pytest.raises(ClientError, match="TargetModel must be given"):
        cloud.runtime.invoke_endpoint(EndpointName=many, Body=b"{}")
    output = {"OutputConfig": {"S3OutputPath": "s3://models/out"}}
    for variant in ({"ModelName": "many", "InstanceType": "ml.m5.xlarge"}, {"ModelName": None}):
        with pytest.raises(ClientError, match="AsyncInferenceConfig needs a model"):
            cloud.config("no-target", variant, ExecutionRoleArn=ROLE, AsyncInferenceConfig=output)
    cloud.config("no-models", {"ModelName": None, "InstanceType": "ml.m5.xlarge"}, ExecutionRoleArn=ROLE)
    cloud.endpoint("no-models", "no-models")
    with pytest.raises(ClientError, match="which no inference component can have"):
        cloud.sagemaker.create_inference_component(
            InferenceComponentName="many",
            EndpointName="no-models",
            VariantName="AllTraffic",
            Specification={"ModelName": "many", "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024}},
            RuntimeConfig={"CopyCount": 1},
        )
    cloud.delete("no-models")
    with pytest.raises(ClientError, match="needs ModelDataUrl"):
        cloud.sagemaker.create_model(
            ModelName="no-prefix", PrimaryContainer={"Image": "stub", "Mode": "MultiModel"}, ExecutionRoleArn=ROLE
        )
