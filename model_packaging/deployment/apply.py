"""Creates or updates the resources of a deployment, step by step. Each step first checks whether it is needed."""

from __future__ import annotations

import time
from typing import Any

from handler.errors import SettingError
from model_packaging.deployment.aws import Aws, create, unless_missing
from model_packaging.deployment.container_log import ContainerLog, Log, groups
from model_packaging.deployment.definition.resources import TAG, Resources, rolling
from model_packaging.deployment.deployment_errors import DeploymentFailed, NotOurs
from model_packaging.deployment.removal import Removal
from model_packaging.deployment.watch import MOVING, EndpointWatch, PollInterval, Tell, WatchedResource

Members = dict[str, Any]
INSTANCES = "The endpoint's instances run on: `neuron-endpoint delete {name}` ends them."


class Application:
    """One run of a deployment.

    :param log: the container's log. The default is CloudWatch.
    """

    def __init__(
        self,
        aws: Aws,
        desired: Resources,
        tell: Tell,
        pace: PollInterval | None = None,
        log: Log | None = None,
    ) -> None:
        self._aws, self._wanted, self._tell = aws, desired, tell
        if log is None:
            log = ContainerLog(aws.logs, groups(desired.name, desired.component is not None))
        self._watch = EndpointWatch(log, tell, pace or PollInterval())

    def run(self, wait: bool = True) -> None:
        """Returns when the endpoint and everything that belongs to it is in service.

        :param wait: False returns when the endpoint is being created. A later run creates components and scaling, which
            need the endpoint in service.
        :raises NotOurs: a resource with this name exists that this command did not create.
        :raises DeploymentFailed: the deployment failed.
        :raises StillGoing: it takes longer than the poll interval's time limit.
        """
        self._require_names()
        self._once("model", "model", "ModelName", self._wanted.model)
        self._once("endpoint configuration", "endpoint_config", "EndpointConfigName", self._wanted.config)
        for alarm in self._wanted.alarms:
            self._alarm(alarm)
        self._endpoint(wait)
        if not wait:
            return
        if self._wanted.component is not None:
            self._component(self._wanted.component)
        if self._wanted.scaling is not None:
            self._scaling()

    def _require_names(self) -> None:
        """:raises NotOurs: somebody else has an endpoint or a component of this name. Nothing has been created yet."""
        name, component = self._wanted.name, self._wanted.component
        self._described(WatchedResource(self._aws.sagemaker, "endpoint", name), "an endpoint", name)
        if component is not None:
            name = component["InferenceComponentName"]
            self._described(
                WatchedResource(self._aws.sagemaker, "inference_component", name), "an inference component", name
            )

    def _once(self, kind: str, call: str, name: str, members: Members) -> None:
        sagemaker = self._aws.sagemaker
        missing = unless_missing(getattr(sagemaker, f"describe_{call}"), **{name: members[name]}) is None
        self._tell(f"{kind} {members[name]}: {'creating' if missing else 'there'}")
        if missing:
            create(getattr(sagemaker, f"create_{call}"), members)

    def _endpoint(self, wait: bool) -> None:
        desired = self._wanted
        endpoint = WatchedResource(self._aws.sagemaker, "endpoint", desired.name)
        about = self._described(endpoint, "an endpoint", desired.name)
        if about is not None and about["EndpointStatus"] in MOVING:
            self._watch.begin(about["LastModifiedTime"].timestamp())
            if not wait:
                self._tell(f"{endpoint.label}: {about['EndpointStatus']}")
                return
        about = self._usable(endpoint, about)
        if about is not None:
            self._require_kind(about)
            Removal(self._aws, desired.name).remove_outdated(desired, self._tell)
        if about is None:
            self._create(endpoint, desired.endpoint)
        elif about["EndpointConfigName"] != desired.config["EndpointConfigName"]:
            self._tell(f"{endpoint.label}: updating from {about['EndpointConfigName']}")
            self._watch.begin(time.time())
            endpoint.update(**self._update(about))
        if not wait:
            return
        now = self._watch.in_service(endpoint)
        if now["EndpointConfigName"] != desired.config["EndpointConfigName"]:
            # After a rolled back update the endpoint is in service with its old configuration.
            reason = str(now.get("FailureReason") or "it was rolled back")
            raise self._watch.failed(f"the update of {endpoint.label}", reason)
        if desired.component is None and desired.scaling is None:
            self._set_instances(endpoint, now)

    def _require_kind(self, about: Members) -> None:
        """:raises SettingError: UpdateEndpoint would refuse it, when its scaling has been ended already."""
        current = self._aws.sagemaker.describe_endpoint_config(EndpointConfigName=about["EndpointConfigName"])
        if "AsyncInferenceConfig" in current and "AsyncInferenceConfig" not in self._wanted.config:
            problem = "the endpoint is asynchronous, which an update cannot change"
            raise SettingError("--async-output", problem, "Give it, delete the endpoint first, or choose another name.")

    def _update(self, about: Members) -> Members:
        """Returns the update. If scaling keeps the number of instances, the update's steps are of that number."""
        desired = self._wanted
        if not desired.update.get("RetainAllVariantProperties"):
            return desired.update
        running = sum(summary.get("DesiredInstanceCount", 0) for summary in about.get("ProductionVariants", ()))
        members = {key: value for key, value in desired.update.items() if key != "DeploymentConfig"}
        return {**members, **rolling(desired.name, running, running, alarms=bool(desired.alarms))}

    def _set_instances(self, endpoint: WatchedResource, about: Members) -> None:
        """Sets the number of instances back that scaling, which is ended, has left."""
        variant = self._wanted.config["ProductionVariants"][0]
        name, number = variant["VariantName"], variant["InitialInstanceCount"]
        if all(
            summary.get("DesiredInstanceCount", number) == number for summary in about.get("ProductionVariants", ())
        ):
            return
        self._tell(f"{endpoint.label}: setting {number} instances")
        capacity = {"VariantName": name, "DesiredInstanceCount": number}
        self._aws.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=self._wanted.name, DesiredWeightsAndCapacities=[capacity]
        )
        self._watch.in_service(endpoint)

    def _component(self, members: Members) -> None:
        name = members["InferenceComponentName"]
        component = WatchedResource(self._aws.sagemaker, "inference_component", name)
        about = self._usable(component, self._described(component, "an inference component", name))
        if about is None:
            self._create(component, members)
        elif changed := self._changed(about, members):
            self._tell(f"{component.label}: updating")
            self._watch.begin(time.time())
            component.update(**changed, **self._steps(about, changed))
        try:
            now = self._watch.in_service(component)
        except DeploymentFailed as failure:
            failure.message += f"\n{INSTANCES.format(name=self._wanted.name)}"
            raise
        if about is not None and self._changed(now, members):
            # After a rolled back update the component is in service as it was before.
            reason = str(now.get("FailureReason") or "it was rolled back")
            raise self._watch.failed(f"the update of {component.label}", reason)

    def _changed(self, about: Members, members: Members) -> Members:
        """Returns the parameters of an update. Scaling decides about the copies itself."""
        changed: Members = {}
        there, specification = about.get("Specification", {}), members["Specification"]
        if any(there.get(key) != value for key, value in specification.items()):
            changed["Specification"] = specification
        copies = members["RuntimeConfig"]["CopyCount"]
        if self._wanted.scaling is None and about.get("RuntimeConfig", {}).get("DesiredCopyCount") != copies:
            changed["RuntimeConfig"] = members["RuntimeConfig"]
        return changed

    def _steps(self, about: Members, changed: Members) -> Members:
        """Returns the steps in which new copies replace the old ones. All at once would need as many free instances.

        Each copy takes an instance. With steps, SageMaker adds one for a step, up to MaxInstanceCount (AWS's example
        sagemaker-genai-hosting-examples, 03-features/deployment/ic_rolling_deployment.ipynb).
        """
        if "Specification" not in changed:
            return {}
        running = about.get("RuntimeConfig", {}).get("DesiredCopyCount", 0)
        counts = (running, changed.get("RuntimeConfig", {}).get("CopyCount", running))
        desired = self._wanted
        return rolling(desired.name, min(counts), max(counts), alarms=bool(desired.alarms), unit="COPY_COUNT")

    def _described(self, resource: WatchedResource, kind: str, name: str) -> Members | None:
        about = unless_missing(resource.describe)
        if about is not None:
            self._require_ours(kind, name, self._aws.sagemaker.list_tags(ResourceArn=about[resource.arn])["Tags"])
        return about

    def _usable(self, resource: WatchedResource, about: Members | None) -> Members | None:
        """Waits for a change to end. Deletes a resource whose creation failed: it neither serves nor can be updated."""
        if about is not None and about[resource.status] in MOVING:
            about = self._watch.settled(resource)
        if about is not None and about[resource.status] == "Failed":
            reason = f" ({about.get('FailureReason', '')[:200]})" if "EndpointStatus" in about else ""
            self._tell(f"{resource.label}: failed before{reason}; deleting it")
            resource.delete()
            about = self._watch.settled(resource)
        return about

    def _create(self, resource: WatchedResource, members: Members) -> None:
        self._tell(f"{resource.label}: creating")
        self._watch.begin(time.time())
        create(resource.create, members)

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
            tags = self._aws.cloudwatch.list_tags_for_resource(ResourceARN=there[0]["AlarmArn"])["Tags"]
            self._require_ours("an alarm", members["AlarmName"], tags)
            members = {key: value for key, value in members.items() if key != "Tags"}
        self._tell(f"alarm {members['AlarmName']}: {'there' if there else 'creating'}")
        self._aws.cloudwatch.put_metric_alarm(**members)

    def _require_ours(self, kind: str, name: str, tags: list[dict[str, str]]) -> None:
        if {"Key": TAG, "Value": self._wanted.name} not in tags:
            raise NotOurs(kind, name, TAG)
