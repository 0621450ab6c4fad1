"""Every operation that is claimed, its success and each of its documented errors, by botocore's own service models.

The tables must name exactly what the models document for what the running service answers: a new operation, or a
botocore that documents one more error, fails here until there is a case for it.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.exceptions import ClientError, EventStreamError
from botocore.model import ServiceModel
from local_service import QUICK, ROLE, Cloud, LocalService, until
from test_components import COMPUTE
from test_scaling import DIMENSION, POLICY, TRACKING
from test_transform_jobs import create as create_job

MAKER, RUNTIME, SCALING = "sagemaker", "sagemaker-runtime", "application-autoscaling"
SESSION = botocore.session.get_session()
MODELS: dict[str, ServiceModel] = {name: SESSION.get_service_model(name) for name in (MAKER, RUNTIME, SCALING)}
QUOTAS = ("model=3", "endpoint-config=5", "inference-component=1", "transform-job=1", "instances=6")
TARGET = {**DIMENSION, "ResourceId": "endpoint/e/variant/AllTraffic"}
OTHER = {**TARGET, "PolicyName": "none"}
BAD = {"ServiceNamespace": "nonsense"}
ARN = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
NO_TARGET = (
    "arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/1234abcd56ab78cd901ef1234567890ab123"
)
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


def documented(operation: str) -> set[str]:
    return {shape.name for shape in MODELS[service_of(operation)].operation_model(operation).error_shapes}


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
    "RegisterScalableTarget": {**TARGET, "MinCapacity": 1, "MaxCapacity": 2},
    "DescribeScalableTargets": {"ServiceNamespace": "sagemaker"},
    "PutScalingPolicy": {**POLICY, **TARGET, "TargetTrackingScalingPolicyConfiguration": TRACKING},
    "DescribeScalingPolicies": {"ServiceNamespace": "sagemaker"},
    "DeleteScalingPolicy": {**TARGET, "PolicyName": "p"},
    "TagResource": {"ResourceARN": "", "Tags": {"a": "b"}},
    "ListTagsForResource": {"ResourceARN": ""},
    "UntagResource": {"ResourceARN": "", "TagKeys": ["a"]},
    "DeregisterScalableTarget": TARGET,
    "InvokeEndpoint": INVOKED,
    "InvokeEndpointWithResponseStream": {"EndpointName": "e", "Body": b'{"do": "stream", "count": 2}'},
    "InvokeEndpointAsync": {"EndpointName": "queue", "Body": b"{}"},
}

# (operation, error) -> what is asked, where this machine has the error of its own accord.
CASES: dict[tuple[str, str], dict[str, Any]] = {
    ("CreateModel", "ResourceLimitExceeded"): {**SUCCESSES["CreateModel"], "ModelName": "more"},
    ("CreateEndpointConfig", "ResourceLimitExceeded"): {
        **SUCCESSES["CreateEndpointConfig"],
        "EndpointConfigName": "more",
    },
    ("CreateEndpoint", "ResourceLimitExceeded"): {"EndpointName": "more", "EndpointConfigName": "big"},
    ("UpdateEndpoint", "ResourceLimitExceeded"): {"EndpointName": "e", "EndpointConfigName": "big"},
    ("UpdateEndpointWeightsAndCapacities", "ResourceLimitExceeded"): {
        "EndpointName": "e",
        "DesiredWeightsAndCapacities": [{**SCALED[0], "DesiredInstanceCount": 9}],
    },
    ("CreateInferenceComponent", "ResourceLimitExceeded"): {**COMPONENT, "InferenceComponentName": "more"},
    ("CreateTransformJob", "ResourceLimitExceeded"): {"TransformJobName": "more"},
    ("CreateTransformJob", "ResourceInUse"): {"TransformJobName": "job"},
    ("CreateTransformJob", "ResourceNotFound"): {"TransformJobName": "more", "ModelName": "never"},
    ("DescribeTransformJob", "ResourceNotFound"): {"TransformJobName": "never"},
    ("StopTransformJob", "ResourceNotFound"): {"TransformJobName": "never"},
    ("DeleteScalingPolicy", "ValidationException"): {**OTHER, **BAD},
    ("DeleteScalingPolicy", "ObjectNotFoundException"): OTHER,
    ("DeregisterScalableTarget", "ValidationException"): {**TARGET, **BAD},
    ("DeregisterScalableTarget", "ObjectNotFoundException"): {**TARGET, "ResourceId": "endpoint/x/variant/y"},
    ("DescribeScalableTargets", "ValidationException"): BAD,
    ("DescribeScalableTargets", "InvalidNextTokenException"): {"ServiceNamespace": "sagemaker", "NextToken": "x"},
    ("DescribeScalingPolicies", "ValidationException"): BAD,
    ("DescribeScalingPolicies", "InvalidNextTokenException"): {"ServiceNamespace": "sagemaker", "NextToken": "x"},
    ("PutScalingPolicy", "ValidationException"): {**OTHER, **BAD},
    ("PutScalingPolicy", "ObjectNotFoundException"): {**OTHER, "ResourceId": "endpoint/x/variant/y"},
    ("PutScalingPolicy", "LimitExceededException"): {
        **SUCCESSES["PutScalingPolicy"],
        "PolicyName": "the 51st",
    },
    ("RegisterScalableTarget", "ValidationException"): {**TARGET, **BAD},
    ("TagResource", "ResourceNotFoundException"): {"ResourceARN": NO_TARGET, "Tags": {"a": "b"}},
    ("TagResource", "TooManyTagsException"): {"ResourceARN": "", "Tags": {str(each): "" for each in range(51)}},
    ("TagResource", "ValidationException"): {"ResourceARN": ARN, "Tags": {"x" * 129: ""}},
    ("ListTagsForResource", "ResourceNotFoundException"): {"ResourceARN": NO_TARGET},
    ("UntagResource", "ResourceNotFoundException"): {"ResourceARN": NO_TARGET, "TagKeys": ["a"]},
    ("UntagResource", "ValidationException"): {"ResourceARN": ARN, "TagKeys": ["x" * 129]},
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

# (operation, error) -> why this machine does not have it of its own accord: `chaos error` makes it.
REHEARSED: dict[tuple[str, str], str] = {
    ("UpdateInferenceComponent", "ResourceLimitExceeded"): "no quota here counts a component's copies",
    ("UpdateInferenceComponentRuntimeConfig", "ResourceLimitExceeded"): "no quota here counts a component's copies",
    ("RegisterScalableTarget", "LimitExceededException"): "no quota here counts scalable targets",
    ("DescribeScalingPolicies", "FailedResourceAccessException"): "policies have no alarms here that could be gone",
    ("PutScalingPolicy", "FailedResourceAccessException"): "policies have no alarms here that could be gone",
    ("InvokeEndpoint", "InternalDependencyException"): "there is nothing behind the gateway but the container",
    ("InvokeEndpoint", "ModelNotReadyException"): "of multi-model endpoints: test_target_models.py has the real one",
    **{
        (operation, "ConcurrentUpdateException"): "calls wait for each other here"
        for operation in SUCCESSES
        if "ConcurrentUpdateException" in documented(operation)
    },
    **{
        (operation, "InternalServiceException"): "a fault of the service itself"
        for operation in SUCCESSES
        if "InternalServiceException" in documented(operation)
    },
    **{
        (operation, error): reason
        for operation in MODELS[RUNTIME].operation_names
        for error, reason in (
            ("InternalFailure", "a fault of the service itself"),
            ("ServiceUnavailable", "needs an endpoint without an instance: test_endpoint_changes.py has the real one"),
        )
    },
    ("InvokeEndpointWithResponseStream", "InternalStreamFailure"): "a fault of the service itself",
}


class Account:
    """A service whose quotas are nearly used up, and a client of each of its three halves."""

    def __init__(self, service: LocalService) -> None:
        self.cloud = Cloud(service)
        self.clients = {name: service.client(name) for name in MODELS}

    def call(self, operation: str, asked: dict[str, Any]) -> Any:
        if operation == "CreateTransformJob":
            create_job(self.cloud, **{"name": asked.get("TransformJobName", "job"), **asked})
            return None
        method = getattr(self.clients[service_of(operation)], botocore.xform_name(operation))
        if asked.get("ResourceARN") == "":  # the target's, which is made up when it is registered
            found = self.clients[SCALING].describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
            asked = {**asked, "ResourceARN": found[0]["ScalableTargetARN"]}
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

    def rehearse(self, error: str, operation: str) -> None:
        """As `chaos error` does."""
        self.cloud.service.tell("error", code=error, operation=operation, endpoint=None, times=1)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    options = [word for quota in QUOTAS for word in ("--quota", quota)]
    service = LocalService(tmp_path_factory.mktemp("account"), *QUICK, *options)
    account = Account(service)
    cloud = account.cloud
    for model in ("m", "batch"):
        cloud.model(model)
    asynchronous = {"OutputConfig": {"S3OutputPath": "s3://models/out/"}}
    cloud.config("e", {"ModelName": "m"})
    cloud.config("queue", {"ModelName": "m"}, AsyncInferenceConfig=asynchronous)
    cloud.config("shared", {"ModelName": None}, ExecutionRoleArn=ROLE)
    cloud.config("big", {"ModelName": "m", "InitialInstanceCount": 9})
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


@pytest.fixture(scope="module")
def full(account: Account, walked: dict[str, Any]) -> Account:
    """Each quota is used up."""
    for operation in ("CreateModel", "CreateEndpointConfig", "CreateInferenceComponent", "RegisterScalableTarget"):
        account.call(operation, SUCCESSES[operation])
    for number in range(50):
        account.call("PutScalingPolicy", {**SUCCESSES["PutScalingPolicy"], "PolicyName": f"p{number}"})
    account.settle()
    return account


def test_the_tables_are_what_the_models_document() -> None:
    expected = {(operation, error) for operation in SUCCESSES for error in documented(operation)}
    assert {*CASES, *REHEARSED} == expected
    assert not CASES.keys() & REHEARSED.keys()
    print("\nErrors that this machine has only on request:")
    for (operation, error), reason in sorted(REHEARSED.items()):
        print(f"  {operation:40} {error:32} {reason}")


def test_every_other_operation_is_answered_as_unknown(account: Account) -> None:
    """All the names that botocore knows, on the wire; what is claimed is what is not unknown."""
    url = urlsplit(account.cloud.service.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    claimed = set(MODELS[RUNTIME].operation_names)
    for name in (MAKER, SCALING):
        prefix = MODELS[name].metadata["targetPrefix"]
        for operation in [*MODELS[name].operation_names, "NoSuchOperation"]:
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
def test_it_fails_as_documented(full: Account, operation: str, error: str) -> None:
    failed_as(full, operation, error, lambda: full.call(operation, CASES[operation, error]))


@pytest.mark.parametrize(("operation", "error"), REHEARSED)
def test_it_fails_as_documented_when_it_is_rehearsed(full: Account, operation: str, error: str) -> None:
    asked = SUCCESSES[operation]
    full.rehearse(error, operation)
    failed_as(full, operation, error, lambda: full.call(operation, asked))


def failed_as(account: Account, operation: str, error: str, call: Callable[[], Any]) -> None:
    exceptions = account.clients[service_of(operation)].exceptions
    in_stream = error in ("ModelStreamError", "InternalStreamFailure")
    with pytest.raises(EventStreamError if in_stream else getattr(exceptions, error)) as caught:
        call()
    response = caught.value.response
    assert response["Error"]["Code"] == error
    assert response["Error"]["Message"]
    if in_stream:
        return
    shape = MODELS[service_of(operation)].shape_for_error_code(error)
    status = shape.metadata.get("error", {}).get("httpStatusCode", 500 if error == "InternalServiceException" else 400)
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    if error == "ModelError":
        assert response["OriginalStatusCode"] == 500
        assert response["LogStreamArn"].startswith("arn:aws:logs:")
