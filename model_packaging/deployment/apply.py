"""Creates or updates the resources of a deployment, step by step. Each step first checks whether it is needed."""

from __future__ import annotations

import time
from typing import Any

from model_packaging.deployment.aws import Aws
from model_packaging.deployment.calls import create, found
from model_packaging.deployment.container_log import ContainerLog, Log, groups
from model_packaging.deployment.definition.resources import TAG, Resources
from model_packaging.deployment.deployment_errors import NotOurs
from model_packaging.deployment.watch import MOVING, EndpointWatch, PollInterval, Tell

Members = dict[str, Any]


class Application:
    """One run of a deployment.

    :param log: the container's log. The default is CloudWatch.
    """

    def __init__(
        self,
        aws: Aws,
        wanted: Resources,
        tell: Tell,
        pace: PollInterval | None = None,
        log: Log | None = None,
    ) -> None:
        self._aws, self._wanted, self._tell = aws, wanted, tell
        if log is None:
            log = ContainerLog(aws.logs, groups(wanted.name, wanted.component is not None))
        self._watch = EndpointWatch(log, tell, pace or PollInterval())

    def run(self, wait: bool = True) -> None:
        """Returns when the endpoint and everything that belongs to it is in service.

        :param wait: False returns when the endpoint is being created. A later run creates components and scaling, which
            need the endpoint in service.
        :raises NotOurs: a resource with this name exists that this command did not create.
        :raises DeploymentFailed: the deployment failed.
        :raises StillGoing: it takes longer than the poll interval's time limit.
        """
        sagemaker = self._aws.sagemaker
        self._once("model", sagemaker.describe_model, sagemaker.create_model, self._wanted.model, "ModelName")
        self._once(
            "endpoint configuration",
            sagemaker.describe_endpoint_config,
            sagemaker.create_endpoint_config,
            self._wanted.config,
            "EndpointConfigName",
        )
        for alarm in self._wanted.alarms:
            self._alarm(alarm)
        self._endpoint(wait)
        if not wait:
            return
        if self._wanted.component is not None:
            self._component(self._wanted.component)
        if self._wanted.scaling is not None:
            self._scaling()

    def _once(self, kind: str, describe: Any, creates: Any, members: Members, name: str) -> None:
        if found(describe, **{name: members[name]}) is None:
            self._tell(f"{kind} {members[name]}: creating")
            create(creates, members)
        else:
            self._tell(f"{kind} {members[name]}: there")

    def _endpoint(self, wait: bool) -> None:
        wanted, sagemaker = self._wanted, self._aws.sagemaker
        what, named = f"endpoint {wanted.name}", {"EndpointName": wanted.name}
        about = found(sagemaker.describe_endpoint, **named)
        if about is not None:
            self._require_ours("an endpoint", wanted.name, about["EndpointArn"])
        if about is not None and about["EndpointStatus"] in MOVING:
            self._watch.begin(about["LastModifiedTime"].timestamp())
            if not wait:
                self._tell(f"{what}: {about['EndpointStatus']}")
                return
            about = self._watch.settled(what, sagemaker.describe_endpoint, "EndpointStatus", **named)
        if about is not None and about["EndpointStatus"] == "Failed":
            # A failed first start leaves an endpoint that neither serves nor can be updated.
            self._tell(f"{what}: failed before ({about.get('FailureReason', '')[:200]}); deleting it")
            sagemaker.delete_endpoint(**named)
            about = self._watch.settled(what, sagemaker.describe_endpoint, "EndpointStatus", **named)
        if about is None:
            self._tell(f"{what}: creating")
            self._watch.begin(time.time())
            create(sagemaker.create_endpoint, wanted.endpoint)
        elif about["EndpointConfigName"] != wanted.config["EndpointConfigName"]:
            self._tell(f"{what}: updating from {about['EndpointConfigName']}")
            self._watch.begin(time.time())
            sagemaker.update_endpoint(**wanted.update)
        if not wait:
            return
        now = self._watch.in_service(what, sagemaker.describe_endpoint, "EndpointStatus", **named)
        if now["EndpointConfigName"] != wanted.config["EndpointConfigName"]:
            # After a rolled back update the endpoint is in service with its old configuration.
            raise self._watch.failed(f"the update of {what}", str(now.get("FailureReason") or "it was rolled back"))

    def _component(self, members: Members) -> None:
        sagemaker, name = self._aws.sagemaker, members["InferenceComponentName"]
        what, named = f"component {name}", {"InferenceComponentName": name}
        about = found(sagemaker.describe_inference_component, **named)
        if about is not None:
            self._require_ours("an inference component", name, about["InferenceComponentArn"])
        status = "InferenceComponentStatus"
        if about is not None and about[status] in MOVING:
            about = self._watch.settled(what, sagemaker.describe_inference_component, status, **named)
        if about is not None and about[status] == "Failed":
            self._tell(f"{what}: failed before; deleting it")
            sagemaker.delete_inference_component(**named)
            about = self._watch.settled(what, sagemaker.describe_inference_component, status, **named)
        if about is None:
            self._tell(f"{what}: creating")
            self._watch.begin(time.time())
            create(sagemaker.create_inference_component, members)
        elif about.get("Specification", {}).get("ModelName") != members["Specification"]["ModelName"]:
            self._tell(f"{what}: updating")
            sagemaker.update_inference_component(**named, Specification=members["Specification"])
        self._watch.in_service(what, sagemaker.describe_inference_component, status, **named)

    def _scaling(self) -> None:
        """Registers the scaling. Repeating it with the same values changes nothing."""
        scaling, autoscaling = self._wanted.scaling, self._aws.autoscaling
        assert scaling is not None
        low, high = scaling.target["MinCapacity"], scaling.target["MaxCapacity"]
        self._tell(f"scaling: {low} to {high}")
        # Tags are accepted only for a new target.
        where = {key: scaling.target[key] for key in ("ServiceNamespace", "ScalableDimension")}
        there = autoscaling.describe_scalable_targets(**where, ResourceIds=[scaling.target["ResourceId"]])
        members = {key: value for key, value in scaling.target.items() if key != "Tags"}
        autoscaling.register_scalable_target(**(members if there["ScalableTargets"] else scaling.target))
        autoscaling.put_scaling_policy(**scaling.policy)
        if scaling.from_zero is not None and scaling.wake is not None:
            arn = autoscaling.put_scaling_policy(**scaling.from_zero)["PolicyARN"]
            tags = [{"Key": TAG, "Value": self._wanted.name}]
            self._alarm({**scaling.wake, "AlarmActions": [arn], "Tags": tags})

    def _alarm(self, members: Members) -> None:
        """Creates or updates an alarm. An existing one keeps its tags: some regions reject tags in an update."""
        there = self._aws.cloudwatch.describe_alarms(AlarmNames=[members["AlarmName"]])["MetricAlarms"]
        if there:
            self._require_ours_alarm(members["AlarmName"], there[0]["AlarmArn"])
            members = {key: value for key, value in members.items() if key != "Tags"}
        self._tell(f"alarm {members['AlarmName']}: {'there' if there else 'creating'}")
        self._aws.cloudwatch.put_metric_alarm(**members)

    def _require_ours(self, kind: str, name: str, arn: str) -> None:
        tags = self._aws.sagemaker.list_tags(ResourceArn=arn)["Tags"]
        if {"Key": TAG, "Value": self._wanted.name} not in tags:
            raise NotOurs(kind, name, TAG)

    def _require_ours_alarm(self, name: str, arn: str) -> None:
        tags = self._aws.cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"]
        if {"Key": TAG, "Value": self._wanted.name} not in tags:
            raise NotOurs("an alarm", name, TAG)
