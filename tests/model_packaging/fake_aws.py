"""SageMaker's control plane in memory, behind real boto3 clients.

Every call goes through botocore's own validation and serialisation and is answered before anything is sent; every
answer is validated against the service's model, too. Statuses move on with each description, so no test waits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
from botocore.validate import ParamValidator

Members = dict[str, Any]
THEN = datetime(2026, 1, 1, tzinfo=UTC)
ARN = "arn:aws:sagemaker:us-east-1:123456789012:"


class Refusal(Exception):
    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message


class FakeAws:
    """:ivar calls: (service, operation, parameters) of every call that was answered.
    :ivar interrupt: the number of the call that Ctrl-C hits; `lost`: after it took effect.
    :ivar fails: the reason with which the next endpoint ends as Failed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Members]] = []
        self.interrupt: int | None = None
        self.lost = False
        self.fails = ""
        self.things: dict[str, dict[str, Members]] = {
            kind: {} for kind in ("model", "config", "endpoint", "component", "alarm", "target", "policy", "job")
        }
        self.tags: dict[str, list[dict[str, str]]] = {}
        self.log: list[str] = []
        self.roles: list[Members] = []
        self.caller = "arn:aws:iam::123456789012:user/me"

    def state(self) -> Members:
        """What there is, without what only tells how far it is."""
        return {
            "things": {
                kind: {name: {k: v for k, v in one.items() if k != "moves"} for name, one in things.items()}
                for kind, things in self.things.items()
            },
            "tags": dict(self.tags),
        }

    def answer(self, service: str, operation: str, members: Members) -> Members:
        number = len(self.calls)
        if number == self.interrupt and not self.lost:
            self.interrupt = None
            raise KeyboardInterrupt
        self.calls.append((service, operation, members))
        handler: Callable[..., Members] = getattr(self, f"{service.replace('-', '_')}_{operation}")
        try:
            return handler(**members)
        finally:
            if number == self.interrupt:
                self.interrupt = None
                raise KeyboardInterrupt

    # SageMaker

    def sagemaker_CreateModel(self, ModelName: str, Tags: Any, **members: Any) -> Members:
        return {"ModelArn": self._add("model", ModelName, members, Tags)}

    def sagemaker_DescribeModel(self, ModelName: str) -> Members:
        one = self._get("model", ModelName)
        return {**one, "ModelName": ModelName, "ModelArn": _arn("model", ModelName), "CreationTime": THEN}

    def sagemaker_DeleteModel(self, ModelName: str) -> Members:
        used = [c for c in self.things["config"].values() if c["ProductionVariants"][0].get("ModelName") == ModelName]
        assert not used, "a model is deleted while a configuration names it"
        return self._remove("model", ModelName)

    def sagemaker_ListModels(self, NameContains: str, **_: Any) -> Members:
        return {"Models": self._list("model", "Model", NameContains)}

    def sagemaker_CreateEndpointConfig(self, EndpointConfigName: str, Tags: Any, **members: Any) -> Members:
        model = members["ProductionVariants"][0].get("ModelName")
        if model:
            self._get("model", model)
        return {"EndpointConfigArn": self._add("config", EndpointConfigName, members, Tags)}

    def sagemaker_DescribeEndpointConfig(self, EndpointConfigName: str) -> Members:
        one = self._get("config", EndpointConfigName)
        arn = _arn("config", EndpointConfigName)
        return {**one, "EndpointConfigName": EndpointConfigName, "EndpointConfigArn": arn, "CreationTime": THEN}

    def sagemaker_DeleteEndpointConfig(self, EndpointConfigName: str) -> Members:
        used = [e for e in self.things["endpoint"].values() if e["EndpointConfigName"] == EndpointConfigName]
        assert not used, "a configuration is deleted while an endpoint uses it"
        return self._remove("config", EndpointConfigName)

    def sagemaker_ListEndpointConfigs(self, NameContains: str, **_: Any) -> Members:
        return {"EndpointConfigs": self._list("config", "EndpointConfig", NameContains)}

    def sagemaker_CreateEndpoint(self, EndpointName: str, EndpointConfigName: str, Tags: Any) -> Members:
        moves = ["Creating", "Creating", self._end()]
        members = {"EndpointConfigName": EndpointConfigName, "count": self._count(EndpointConfigName), "moves": moves}
        return {"EndpointArn": self._add("endpoint", EndpointName, members, Tags)}

    def _count(self, config: str) -> int:
        count: int = self._get("config", config)["ProductionVariants"][0].get("InitialInstanceCount", 1)
        return count

    def sagemaker_UpdateEndpointWeightsAndCapacities(self, EndpointName: str, **members: Any) -> Members:
        one = self._get("endpoint", EndpointName)
        self._require_settled(one)
        target = f"endpoint/{EndpointName}/variant/AllTraffic"
        assert target not in self.things["target"], "auto scaling would change it back"
        count = members["DesiredWeightsAndCapacities"][0]["DesiredInstanceCount"]
        one |= {"count": count, "moves": ["Updating", "InService"]}
        return {"EndpointArn": _arn("endpoint", EndpointName)}

    def sagemaker_UpdateEndpoint(
        self, EndpointName: str, EndpointConfigName: str, RetainAllVariantProperties: bool = False, **_: Any
    ) -> Members:
        one = self._get("endpoint", EndpointName)
        self._require_settled(one)
        if self.fails:
            one["moves"] = ["Updating", "RollingBack", "InService"]
        else:
            count = one["count"] if RetainAllVariantProperties else self._count(EndpointConfigName)
            one |= {"EndpointConfigName": EndpointConfigName, "count": count, "moves": ["Updating", "InService"]}
        return {"EndpointArn": _arn("endpoint", EndpointName)}

    def sagemaker_DescribeEndpoint(self, EndpointName: str) -> Members:
        one = self._get("endpoint", EndpointName)
        status = self._move("endpoint", EndpointName, one)
        failure = {"FailureReason": self.fails} if self.fails and status in ("Failed", "InService") else {}
        return {
            "EndpointName": EndpointName,
            "EndpointArn": _arn("endpoint", EndpointName),
            "EndpointConfigName": one["EndpointConfigName"],
            "ProductionVariants": [{"VariantName": "AllTraffic", "DesiredInstanceCount": one["count"]}],
            "EndpointStatus": status,
            "CreationTime": THEN,
            "LastModifiedTime": THEN,
            **failure,
        }

    def sagemaker_DeleteEndpoint(self, EndpointName: str) -> Members:
        one = self._get("endpoint", EndpointName)
        self._require_settled(one)
        assert not [c for c in self.things["component"].values() if c["EndpointName"] == EndpointName]
        one["moves"] = ["Deleting", "Deleting", ""]
        return {}

    def sagemaker_ListEndpoints(self, NameContains: str, **_: Any) -> Members:
        more = {"LastModifiedTime": THEN, "EndpointStatus": "InService"}
        return {"Endpoints": self._list("endpoint", "Endpoint", NameContains, more)}

    def sagemaker_CreateInferenceComponent(self, InferenceComponentName: str, Tags: Any, **members: Any) -> Members:
        endpoint = self._get("endpoint", members["EndpointName"])
        assert endpoint["moves"] == ["InService"], "a component needs an endpoint in service"
        self._get("model", members["Specification"]["ModelName"])
        members["moves"] = ["Creating", self._end()]
        return {"InferenceComponentArn": self._add("component", InferenceComponentName, members, Tags)}

    def sagemaker_UpdateInferenceComponent(self, InferenceComponentName: str, **members: Any) -> Members:
        one = self._get("component", InferenceComponentName)
        self._require_settled(one)
        one |= {**({} if self.fails else members), "moves": ["Updating", "InService"]}
        return {"InferenceComponentArn": _arn("component", InferenceComponentName)}

    def sagemaker_DescribeInferenceComponent(self, InferenceComponentName: str) -> Members:
        one = self._get("component", InferenceComponentName)
        status = self._move("component", InferenceComponentName, one)
        return {
            "InferenceComponentName": InferenceComponentName,
            "InferenceComponentArn": _arn("component", InferenceComponentName),
            "EndpointName": one["EndpointName"],
            "EndpointArn": _arn("endpoint", one["EndpointName"]),
            "Specification": one["Specification"],
            "RuntimeConfig": {
                "DesiredCopyCount": one["RuntimeConfig"]["CopyCount"],
                "CurrentCopyCount": one["RuntimeConfig"]["CopyCount"],
            },
            "InferenceComponentStatus": status,
            "CreationTime": THEN,
            "LastModifiedTime": THEN,
            **({"FailureReason": self.fails} if self.fails and status in ("Failed", "InService") else {}),
        }

    def sagemaker_DeleteInferenceComponent(self, InferenceComponentName: str) -> Members:
        one = self._get("component", InferenceComponentName)
        self._require_settled(one)
        one["moves"] = ["Deleting", ""]
        return {}

    def sagemaker_ListInferenceComponents(self, NameContains: str, **_: Any) -> Members:
        more = {
            "EndpointArn": _arn("endpoint", "x"),
            "EndpointName": "x",
            "VariantName": "AllTraffic",
            "LastModifiedTime": THEN,
        }
        return {"InferenceComponents": self._list("component", "InferenceComponent", NameContains, more)}

    def sagemaker_ListTags(self, ResourceArn: str) -> Members:
        return {"Tags": self.tags.get(ResourceArn, [])}

    def sagemaker_CreateTrainingJob(self, TrainingJobName: str, Tags: Any, **members: Any) -> Members:
        moves = ["InProgress", "InProgress", "Failed" if self.fails else "Completed"]
        return {"TrainingJobArn": self._add("job", TrainingJobName, {**members, "moves": moves}, Tags)}

    def sagemaker_ListTrainingJobs(self, NameContains: str, SortOrder: str, MaxResults: int, **_: Any) -> Members:
        assert SortOrder == "Descending"
        jobs = self._list("job", "TrainingJob", NameContains)[::-1][:MaxResults]
        return {
            "TrainingJobSummaries": [
                {**one, "TrainingJobStatus": self.things["job"][one["TrainingJobName"]]["moves"][0]} for one in jobs
            ]
        }

    def sagemaker_DescribeTrainingJob(self, TrainingJobName: str) -> Members:
        one = self._get("job", TrainingJobName)
        status = self._move("job", TrainingJobName, one)
        return {
            "TrainingJobName": TrainingJobName,
            "TrainingJobArn": _arn("job", TrainingJobName),
            "TrainingJobStatus": status,
            "SecondaryStatus": "Training" if status == "InProgress" else status,
            "ModelArtifacts": {"S3ModelArtifacts": ""},
            "StoppingCondition": one["StoppingCondition"],
            "CreationTime": THEN,
            "BillableTimeInSeconds": 60,
            **({"FailureReason": self.fails} if self.fails else {}),
        }

    def sagemaker_StopTrainingJob(self, TrainingJobName: str) -> Members:
        self._get("job", TrainingJobName)["moves"] = ["Stopped"]
        return {}

    # Application Auto Scaling

    def application_autoscaling_RegisterScalableTarget(self, ResourceId: str, **members: Any) -> Members:
        where = ResourceId.split("/")
        self._get("component" if where[0] == "inference-component" else "endpoint", where[1])
        tags = members.pop("Tags", None)
        arn = f"arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/{ResourceId}"
        if tags is not None:
            assert ResourceId not in self.things["target"], "tags are taken only when a target is new"
            self.tags[arn] = [{"Key": key, "Value": value} for key, value in tags.items()]
        self.things["target"][ResourceId] = members
        return {"ScalableTargetARN": arn}

    def application_autoscaling_DescribeScalableTargets(self, ResourceIds: Any = None, **where: Any) -> Members:
        found = [(name, self.things["target"].get(name)) for name in ResourceIds or self.things["target"]]
        targets = [
            {
                "ServiceNamespace": one["ServiceNamespace"],
                "ResourceId": name,
                "ScalableDimension": one["ScalableDimension"],
                "MinCapacity": one["MinCapacity"],
                "MaxCapacity": one["MaxCapacity"],
                "RoleARN": "arn:aws:iam::123456789012:role/scaling",
                "CreationTime": THEN,
                "ScalableTargetARN": f"arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/{name}",
            }
            for name, one in found
            if one and where.get("ScalableDimension") in (None, one["ScalableDimension"])
        ]
        return {"ScalableTargets": targets}

    def application_autoscaling_ListTagsForResource(self, ResourceARN: str) -> Members:
        return {"Tags": {tag["Key"]: tag["Value"] for tag in self.tags.get(ResourceARN, [])}}

    def application_autoscaling_PutScalingPolicy(self, PolicyName: str, **members: Any) -> Members:
        assert members["ResourceId"] in self.things["target"]
        self.things["policy"][PolicyName] = members
        return {"PolicyARN": f"arn:aws:autoscaling:us-east-1:123456789012:scalingPolicy:1:{PolicyName}"}

    def application_autoscaling_DeleteScalingPolicy(self, PolicyName: str, **_: Any) -> Members:
        if self.things["policy"].pop(PolicyName, None) is None:
            raise Refusal("ObjectNotFoundException", f"No scaling policy found for {PolicyName}")
        return {}

    def application_autoscaling_DeregisterScalableTarget(self, ResourceId: str, **_: Any) -> Members:
        if self.things["target"].pop(ResourceId, None) is None:
            raise Refusal("ObjectNotFoundException", f"No scalable target found for {ResourceId}")
        self.tags.pop(f"arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/{ResourceId}", None)
        policies = self.things["policy"]
        for name in [name for name, one in policies.items() if one["ResourceId"] == ResourceId]:
            del policies[name]
        return {}

    # CloudWatch

    def cloudwatch_PutMetricAlarm(self, AlarmName: str, **members: Any) -> Members:
        tags = members.pop("Tags", None)
        if tags is not None:
            self.tags[_alarm(AlarmName)] = tags
        self.things["alarm"][AlarmName] = members
        return {}

    def cloudwatch_DescribeAlarms(self, AlarmNames: Any = None, AlarmNamePrefix: str = "", **_: Any) -> Members:
        names = [
            name
            for name in self.things["alarm"]
            if (name in AlarmNames if AlarmNames else name.startswith(AlarmNamePrefix))
        ]
        return {"MetricAlarms": [{"AlarmName": name, "AlarmArn": _alarm(name)} for name in names]}

    def cloudwatch_ListTagsForResource(self, ResourceARN: str) -> Members:
        return {"Tags": self.tags.get(ResourceARN, [])}

    def cloudwatch_DeleteAlarms(self, AlarmNames: list[str]) -> Members:
        for name in AlarmNames:
            self.things["alarm"].pop(name, None)
            self.tags.pop(_alarm(name), None)
        return {}

    # The rest

    def logs_FilterLogEvents(self, logGroupName: str, startTime: int, nextToken: str = "0", **_: Any) -> Members:
        if not self.log:
            raise Refusal("ResourceNotFoundException", "The specified log group does not exist.")
        number = int(nextToken)
        events = [
            {"eventId": str(i), "timestamp": startTime + i, "logStreamName": "AllTraffic/i-0abc", "message": text}
            for i, text in enumerate(self.log)
        ]
        more = {"nextToken": str(number + 2)} if number + 2 < len(events) else {}
        return {"events": events[number : number + 2], **more}

    def iam_ListRoles(self) -> Members:
        return {"Roles": self.roles, "IsTruncated": False}

    def iam_GetRole(self, RoleName: str) -> Members:
        for role in self.roles:
            if role["RoleName"] == RoleName:
                return {"Role": role}
        raise Refusal("NoSuchEntity", f"The role with name {RoleName} cannot be found.")

    def sts_GetCallerIdentity(self) -> Members:
        return {"UserId": "x", "Account": "123456789012", "Arn": self.caller}

    def _end(self) -> str:
        return "Failed" if self.fails else "InService"

    def _add(self, kind: str, name: str, members: Members, tags: Any) -> str:
        if name in self.things[kind]:
            raise Refusal("ValidationException", f"Cannot create already existing {kind} {name}")
        self.things[kind][name] = members
        self.tags[_arn(kind, name)] = tags
        return _arn(kind, name)

    def _get(self, kind: str, name: str) -> Members:
        if name not in self.things[kind]:
            raise Refusal("ValidationException", f'Could not find {kind} "{_arn(kind, name)}".')
        return self.things[kind][name]

    def _remove(self, kind: str, name: str) -> Members:
        self._get(kind, name)
        del self.things[kind][name]
        del self.tags[_arn(kind, name)]
        return {}

    def _move(self, kind: str, name: str, one: Members) -> str:
        moves: list[str] = one["moves"]
        status = moves[0]
        if len(moves) > 1:
            del moves[0]
        if not status:
            self._remove(kind, name)
            self._get(kind, name)
        return status

    def _require_settled(self, one: Members) -> None:
        if len(one["moves"]) > 1 or one["moves"][0] == "Deleting":
            raise Refusal("ValidationException", f"Cannot update in-progress {one['moves'][0]}")

    def _list(self, kind: str, member: str, contains: str, more: Members | None = None) -> list[Members]:
        return [
            {f"{member}Name": name, f"{member}Arn": _arn(kind, name), "CreationTime": THEN, **(more or {})}
            for name in self.things[kind]
            if contains in name
        ]


KINDS = {
    "model": "model",
    "config": "endpoint-config",
    "endpoint": "endpoint",
    "component": "inference-component",
    "job": "training-job",
}


def _arn(kind: str, name: str) -> str:
    return f"{ARN}{KINDS[kind]}/{name}"


def _alarm(name: str) -> str:
    return f"arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}"


class Switchboard:
    """One boto3 session for all tests (making SageMaker's client takes long), whose calls go to the current fake."""

    def __init__(self) -> None:
        self.fake = FakeAws()
        self.session = boto3.session.Session(
            region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
        )
        self.session.events.register("provide-client-params.*.*", self._remember)
        self.session.events.register("before-call.*.*", self._answer)  # type: ignore[arg-type]  # it may answer
        self._members: Members = {}

    def _remember(self, params: Members, **_: Any) -> None:
        self._members = params

    def _answer(self, model: Any, **_: Any) -> tuple[Any, Members]:
        service = model.service_model.service_name
        try:
            reply = self.fake.answer(service, model.name, _copy(self._members))
        except Refusal as refusal:
            error = {"Code": refusal.code, "Message": refusal.message}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": {}}
        if model.output_shape is not None:
            report = ParamValidator().validate(reply, model.output_shape)
            assert not report.has_errors(), f"{service} {model.name}: {report.generate_report()}"
        return SimpleNamespace(status_code=200), {**_copy(reply), "ResponseMetadata": {}}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
