"""Every operation that is claimed, its success, and the documented errors that it has here, by botocore's models."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.exceptions import ClientError, EventStreamError
from botocore.model import ServiceModel
from local_service import QUICK, ROLE, Cloud, LocalService, until
from test_components import COMPUTE
from test_transform_jobs import create as create_job

MAKER, RUNTIME = "sagemaker", "sagemaker-runtime"
SESSION = botocore.session.get_session()
MODELS: dict[str, ServiceModel] = {name: SESSION.get_service_model(name) for name in (MAKER, RUNTIME)}
ARN = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
VARIANT = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.inf2.xlarge", "InitialInstanceCount": 1}
SCALED = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}]
SPECIFICATION = {"Container": {"Image": "stub"}, **COMPUTE}
COMPONENT = {
    "InferenceComponentName": "c",
    "EndpointName": "shared",
    "VariantName": "AllTraffic",
    "Specification": SPECIFICATION,
    "RuntimeConfig": {"CopyCount": 1},
}
INVOKED = {"EndpointName": "e", "Body": b"{}"}
FAILING = {"EndpointName": "e", "Body": b'{"do": "fail", "status": 500}'}
NOWHERE = {"EndpointName": "never", "Body": b"{}"}


def service_of(operation: str) -> str:
    return next(name for name, model in MODELS.items() if operation in model.operation_names)


# Operation -> what is asked, in an order in which each succeeds.
SUCCESSES: dict[str, dict[str, Any]] = {
    "CreateModel": {"ModelName": "extra", "PrimaryContainer": {"Image": "stub"}, "ExecutionRoleArn": ROLE},
    "DescribeModel": {"ModelName": "m"},
    "ListModels": {},
    "DeleteModel": {"ModelName": "extra"},
    "AddTags": {"ResourceArn": ARN, "Tags": [{"Key": "a", "Value": "b"}]},
    "ListTags": {"ResourceArn": ARN},
    "DeleteTags": {"ResourceArn": ARN, "TagKeys": ["a"]},
    "CreateEndpointConfig": {"EndpointConfigName": "extra", "ProductionVariants": [VARIANT]},
    "DescribeEndpointConfig": {"EndpointConfigName": "extra"},
    "ListEndpointConfigs": {},
    "CreateEndpoint": {"EndpointName": "extra", "EndpointConfigName": "extra"},
    "DescribeEndpoint": {"EndpointName": "extra"},
    "ListEndpoints": {},
    "UpdateEndpoint": {"EndpointName": "extra", "EndpointConfigName": "extra"},
    "UpdateEndpointWeightsAndCapacities": {"EndpointName": "e", "DesiredWeightsAndCapacities": SCALED},
    "DeleteEndpoint": {"EndpointName": "extra"},
    "DeleteEndpointConfig": {"EndpointConfigName": "extra"},
    "CreateInferenceComponent": COMPONENT,
    "DescribeInferenceComponent": {"InferenceComponentName": "c"},
    "ListInferenceComponents": {},
    "UpdateInferenceComponent": {"InferenceComponentName": "c", "RuntimeConfig": {"CopyCount": 1}},
    "UpdateInferenceComponentRuntimeConfig": {
        "InferenceComponentName": "c",
        "DesiredRuntimeConfig": {"CopyCount": 1},
    },
    "DeleteInferenceComponent": {"InferenceComponentName": "c"},
    "CreateTransformJob": {},
    "DescribeTransformJob": {"TransformJobName": "job"},
    "ListTransformJobs": {},
    "StopTransformJob": {"TransformJobName": "job"},
    "InvokeEndpoint": INVOKED,
    "InvokeEndpointWithResponseStream": {"EndpointName": "e", "Body": b'{"do": "stream", "count": 2}'},
    "InvokeEndpointAsync": {"EndpointName": "queue", "Body": b"{}"},
}

# (operation, error) -> what is asked, where this machine has the error of its own accord.
CASES: dict[tuple[str, str], dict[str, Any]] = {
    ("CreateTransformJob", "ResourceInUse"): {"TransformJobName": "job"},
    ("CreateTransformJob", "ResourceNotFound"): {"TransformJobName": "more", "ModelName": "never"},
    ("DescribeTransformJob", "ResourceNotFound"): {"TransformJobName": "never"},
    ("StopTransformJob", "ResourceNotFound"): {"TransformJobName": "never"},
    ("InvokeEndpoint", "ValidationError"): NOWHERE,
    ("InvokeEndpoint", "ModelError"): FAILING,
    ("InvokeEndpointAsync", "ValidationError"): NOWHERE,
    ("InvokeEndpointWithResponseStream", "ValidationError"): NOWHERE,
    ("InvokeEndpointWithResponseStream", "ModelError"): FAILING,
    ("InvokeEndpointWithResponseStream", "ModelStreamError"): {
        "EndpointName": "e",
        "Body": b'{"do": "stream", "count": 2, "break": true}',
    },
}


class Account:
    """A service, and a client of each of its two halves."""

    def __init__(self, service: LocalService) -> None:
        self.cloud = Cloud(service)
        self.clients = {name: service.client(name) for name in MODELS}

    def call(self, operation: str, asked: dict[str, Any]) -> Any:
        if operation == "CreateTransformJob":
            create_job(self.cloud, **{"name": asked.get("TransformJobName", "job"), **asked})
            return None
        method = getattr(self.clients[service_of(operation)], botocore.xform_name(operation))
        reply = method(**asked)
        if operation == "InvokeEndpointWithResponseStream":
            return b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"])
        return reply

    def settle(self) -> None:
        """Until nothing changes any more."""

        def settled() -> bool:
            endpoints = self.clients[MAKER].list_endpoints(MaxResults=100)["Endpoints"]
            components = self.clients[MAKER].list_inference_components(MaxResults=100)["InferenceComponents"]
            statuses = [each["EndpointStatus"] for each in endpoints]
            statuses += [each["InferenceComponentStatus"] for each in components]
            return set(statuses) <= {"InService", "Failed"}

        until(settled)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    service = LocalService(tmp_path_factory.mktemp("account"), *QUICK)
    account = Account(service)
    cloud = account.cloud
    for model in ("m", "batch"):
        cloud.model(model)
    asynchronous = {"OutputConfig": {"S3OutputPath": "s3://models/out/"}}
    cloud.config("e", {"ModelName": "m"})
    cloud.config("queue", {"ModelName": "m"}, AsyncInferenceConfig=asynchronous)
    cloud.config("shared", {"ModelName": None}, ExecutionRoleArn=ROLE)
    for name in ("e", "queue", "shared"):
        assert cloud.endpoint(name, name) == "InService"
    cloud.s3.put_object(Bucket="models", Key="jobs/job/in/x", Body=b'{"do": "wait", "seconds": 60}')
    yield account
    service.down()


@pytest.fixture(scope="module")
def walked(account: Account) -> dict[str, Any]:
    """What each operation answered when it was first called."""
    answers: dict[str, Any] = {}
    for operation, asked in SUCCESSES.items():
        try:
            answers[operation] = account.call(operation, asked)
        except ClientError as error:
            answers[operation] = error
        account.settle()
    return answers


def test_every_other_operation_is_answered_as_unknown(account: Account) -> None:
    """All the names that botocore knows, on the wire; what is claimed is what is not unknown."""
    url = urlsplit(account.cloud.service.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    claimed = set(MODELS[RUNTIME].operation_names)
    prefix = MODELS[MAKER].metadata["targetPrefix"]
    for operation in [*MODELS[MAKER].operation_names, "NoSuchOperation"]:
        headers = {"X-Amz-Target": f"{prefix}.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        connection.request("POST", "/", b'{"NextToken": 1}', headers)  # of a wrong type: nothing is done
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        assert reply.status == 400, operation
        if answer["__type"] == "UnknownOperationException":
            assert operation in answer["message"]
        else:
            claimed.add(operation)
    assert claimed == SUCCESSES.keys()
    connection.request("POST", "/endpoints/e/no-such-thing", b"{}")
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("x-amzn-errortype")) == (404, "UnknownOperationException")
    reply.read()
    connection.close()


@pytest.mark.parametrize("operation", SUCCESSES)
def test_it_succeeds(walked: dict[str, Any], operation: str) -> None:
    answer = walked[operation]
    assert not isinstance(answer, ClientError), answer
    if operation == "InvokeEndpointWithResponseStream":
        assert answer.count(b"data: ") == 2
    elif operation != "CreateTransformJob":
        model = MODELS[service_of(operation)].operation_model(operation)
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == model.http.get("responseCode", 200)
        required = model.output_shape.required_members if model.output_shape else []
        assert set(required) <= answer.keys()


@pytest.mark.parametrize(("operation", "error"), CASES)
def test_it_fails_as_documented(account: Account, walked: dict[str, Any], operation: str, error: str) -> None:
    shape = MODELS[service_of(operation)].shape_for_error_code(error)
    assert error in {each.name for each in MODELS[service_of(operation)].operation_model(operation).error_shapes}
    in_stream = error == "ModelStreamError"
    exceptions = account.clients[service_of(operation)].exceptions
    with pytest.raises(EventStreamError if in_stream else getattr(exceptions, error)) as caught:
        account.call(operation, CASES[operation, error])
    response = caught.value.response
    assert response["Error"]["Code"] == error
    assert response["Error"]["Message"]
    if in_stream:
        return
    assert response["ResponseMetadata"]["HTTPStatusCode"] == shape.metadata.get("error", {}).get("httpStatusCode", 400)
    if error == "ModelError":
        assert response["OriginalStatusCode"] == 500
        assert response["LogStreamArn"].startswith("arn:aws:logs:")
