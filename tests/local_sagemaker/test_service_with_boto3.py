"""A model's whole life on SageMaker, written with boto3 alone.

Against the real service this file stays as it is; its fixtures name another role, image and bucket, and AWS's own
credentials take the place of ``aws``. SageMaker has no operation for what ``kill_an_instance`` does.
"""

from __future__ import annotations

import ast
import json
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

QUESTION = {"messages": [{"role": "user", "content": "What does /ping mean?"}], "temperature": 0, "max_tokens": 48}
SETTINGS = {
    "SM_VLLM_MAX_MODEL_LEN": "1024",
    "SM_VLLM_MAX_NUM_SEQS": "8",
    "SM_VLLM_ENFORCE_EAGER": "true",
}
SOON = {"Delay": 1, "MaxAttempts": 600}


@contextmanager
def load(endpoint: str, clients: int = 2) -> Iterator[list[str]]:
    """Invocations, one after the other, from several clients that never retry; yields what went wrong."""
    failed: list[str] = []
    ended = threading.Event()
    done = [0] * clients
    short = question(max_tokens=4)

    def invoke(number: int) -> None:
        runtime = boto3.client("sagemaker-runtime", config=Config(retries={"max_attempts": 0}))
        while not ended.is_set():
            try:
                reply = runtime.invoke_endpoint(EndpointName=endpoint, ContentType="application/json", Body=short)
                json.loads(reply["Body"].read())
            except ClientError as error:
                failed.append(error.response["Error"]["Code"])
            except Exception as error:
                failed.append(repr(error))
            done[number] += 1
            ended.wait(0.1)  # Else two cores would have no time to start an engine.

    threads = [threading.Thread(target=invoke, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        ended.set()
        for thread in threads:
            thread.join(90)
        assert all(done), "a client has not got one answer"


def question(**more: object) -> bytes:
    return json.dumps({**QUESTION, **more}).encode()


def answer_of(reply: bytes) -> str:
    text: str = json.loads(reply)["choices"][0]["message"]["content"]
    return text


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("aws")
def test_a_models_life(
    role: str, image: str, bucket: str, model_directory: Path, tmp_path: Path, kill_an_instance: Callable[[str], None]
) -> None:
    s3 = boto3.client("s3")
    sagemaker = boto3.client("sagemaker")
    runtime = boto3.client("sagemaker-runtime")

    # Pack and upload.
    packed = tmp_path / "model.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for file in sorted(model_directory.iterdir()):
            archive.add(file, file.name)
    s3.create_bucket(Bucket=bucket)
    s3.upload_file(str(packed), bucket, "models/model.tar.gz")

    # Create.
    container = {"Image": image, "ModelDataUrl": f"s3://{bucket}/models/model.tar.gz", "Environment": SETTINGS}
    sagemaker.create_model(ModelName="story", PrimaryContainer=container, ExecutionRoleArn=role)
    one: dict[str, Any] = {"VariantName": "AllTraffic", "ModelName": "story", "InstanceType": "ml.inf2.xlarge"}
    one["InitialInstanceCount"] = 1
    asynchronous = {
        "OutputConfig": {"S3OutputPath": f"s3://{bucket}/output/", "S3FailurePath": f"s3://{bucket}/failures/"}
    }
    for name, more in (("story-1", {}), ("story-2", {}), ("story-async", {"AsyncInferenceConfig": asynchronous})):
        sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[one], **more)
    sagemaker.create_endpoint(EndpointName="story", EndpointConfigName="story-1")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="story", WaiterConfig=SOON)

    # Invoke.
    whole = runtime.invoke_endpoint(EndpointName="story", ContentType="application/json", Body=question())
    expected = answer_of(whole["Body"].read())
    assert "ping" in expected
    assert whole["InvokedProductionVariant"] == "AllTraffic"
    assert streamed(runtime, "story") == expected

    # Update under load: another instance, and not one failed request.
    with load("story") as failed:
        sagemaker.update_endpoint(EndpointName="story", EndpointConfigName="story-2")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="story", WaiterConfig=SOON)
    assert failed == []
    assert sagemaker.describe_endpoint(EndpointName="story")["EndpointConfigName"] == "story-2"

    # A crash of the one instance under load: what was under way fails, what follows is told to come back, and then
    # all is well again.
    with load("story") as failed:
        kill_an_instance("story")
        wait(lambda: instances(sagemaker, "story") == 0)
        wait(lambda: instances(sagemaker, "story") == 1)
        before = len(failed)
        assert streamed(runtime, "story") == expected
    assert set(failed) <= {"ModelError", "ServiceUnavailable"}
    assert failed.count("ModelError") <= 2
    assert len(failed) == before

    # Asynchronous: the endpoint's next configuration.
    sagemaker.update_endpoint(EndpointName="story", EndpointConfigName="story-async")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="story", WaiterConfig=SOON)
    s3.put_object(Bucket=bucket, Key="input/1.json", Body=question())
    accepted = runtime.invoke_endpoint_async(
        EndpointName="story", ContentType="application/json", InputLocation=f"s3://{bucket}/input/1.json"
    )
    key = accepted["OutputLocation"].removeprefix(f"s3://{bucket}/")
    s3.get_waiter("object_exists").wait(Bucket=bucket, Key=key, WaiterConfig=SOON)
    assert answer_of(s3.get_object(Bucket=bucket, Key=key)["Body"].read()) == expected

    # Delete.
    sagemaker.delete_endpoint(EndpointName="story")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="story", WaiterConfig=SOON)
    for name in ("story-1", "story-2", "story-async"):
        sagemaker.delete_endpoint_config(EndpointConfigName=name)
    sagemaker.delete_model(ModelName="story")
    with pytest.raises(ClientError, match="not found"):
        runtime.invoke_endpoint(EndpointName="story", Body=question())
    assert sagemaker.list_models(NameContains="story")["Models"] == []


def streamed(runtime: Any, endpoint: str) -> str:
    reply = runtime.invoke_endpoint_with_response_stream(
        EndpointName=endpoint, ContentType="application/json", Body=question(stream=True)
    )
    arrived = b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"])
    events = [line.removeprefix("data: ") for line in arrived.decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    choices = [json.loads(event)["choices"] for event in events[:-1]]
    return "".join(each[0]["delta"].get("content") or "" for each in choices if each)


def instances(sagemaker: Any, endpoint: str) -> int:
    count: int = sagemaker.describe_endpoint(EndpointName=endpoint)["ProductionVariants"][0]["CurrentInstanceCount"]
    return count


def wait(holds: Callable[[], bool], within: float = 240.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def test_nothing_but_boto3_is_used_here() -> None:
    tree = ast.parse(Path(__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    top = {name.partition(".")[0] for name in imported}
    assert top - set(sys.stdlib_module_names) == {"boto3", "botocore", "pytest"}
