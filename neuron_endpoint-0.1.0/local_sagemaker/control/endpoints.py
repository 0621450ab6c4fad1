"""The operations on endpoints. ``hosting`` runs their processes."""

from __future__ import annotations

from typing import Any

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.deployment_config import check_deployment
from local_sagemaker.control.endpoint_configs import weight_of
from local_sagemaker.control.endpoint_description import described_variants, pending_variants
from local_sagemaker.control.models import container_of
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.quotas import Quotas, instances_of
from local_sagemaker.control.registry import COMPONENT, CONFIG, ENDPOINT, MODEL, JsonDocument, Registry, now
from local_sagemaker.control.resource_operations import ResourceOperations
from local_sagemaker.hosting.deployment import part_of
from local_sagemaker.hosting.endpoint import LiveEndpoint
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.rollout import Rollout

CHANGING = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
STARTABLE = ("InService", "Creating", "Updating", "SystemUpdating", "RollingBack")


class Endpoints(ResourceOperations):
    kind = ENDPOINT
    noun = "Endpoint"
    listed = "Endpoints"
    status = "EndpointStatus"

    def __init__(self, registry: Registry, host: Host, quotas: Quotas) -> None:
        super().__init__(registry, quotas)
        self._host = host

    def changes(self) -> dict[str, OperationHandler]:
        return {
            "UpdateEndpoint": self.update,
            "UpdateEndpointWeightsAndCapacities": self.scale,
            "DeleteEndpoint": self.delete,
        }

    def restore(self) -> None:
        """Starts the endpoints again that were in service when the service ended."""
        with self._registry.lock:
            for name, endpoint in list(self._registry.of(ENDPOINT).items()):
                if endpoint["EndpointStatus"] == "Deleting":
                    self._registry.remove(ENDPOINT, name)
                    continue
                live = self._host.open(name, self._reporter(name))
                if endpoint["EndpointStatus"] in STARTABLE:
                    started = endpoint["EndpointStatus"] != "Creating"
                    endpoint["EndpointStatus"] = "SystemUpdating" if started else "Creating"
                    live.create(endpoint["Plan"])
            self._registry.save()

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates an endpoint.

        :raises ValidationException: it exists, or its configuration or a model does not exist.
        """
        name = params["EndpointName"]
        arn = self._registry.arn(ENDPOINT, name)
        with self._registry.lock:
            self._check_name(name)
            plan = self._plan(params["EndpointConfigName"])
            config = params.get("DeploymentConfig")
            check_deployment(config, [each["Count"] for each in plan["Variants"]], self._host.alarms)
            self._quotas.check_new(self._registry, ENDPOINT)
            self._quotas.check_instances(self._registry, instances_of(plan))
            at = now()
            document = {
                "EndpointName": name,
                "EndpointArn": arn,
                "EndpointConfigName": params["EndpointConfigName"],
                "EndpointStatus": "Creating",
                "CreationTime": at,
                "LastModifiedTime": at,
                "Plan": plan,
                "LastDeploymentConfig": config,
                "Tags": params.get("Tags"),
            }
            self._registry.add(ENDPOINT, name, document)
            self._host.open(name, self._reporter(name)).create(plan)
        return {"EndpointArn": arn}

    def describe(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            endpoint = self._found(params["EndpointName"])
            live = self._host.find(params["EndpointName"])
            current = live.current if live else None
            described = {**endpoint, "ProductionVariants": described_variants(endpoint["Plan"], current)}
        if endpoint["EndpointStatus"] in ("Creating", "Failed"):
            del described["ProductionVariants"]
        if config := endpoint["Plan"].get("AsyncInferenceConfig"):
            described["AsyncInferenceConfig"] = config
        if (summary := endpoint.get("Pending")) and endpoint["EndpointStatus"] == "Updating":
            described["PendingDeploymentSummary"] = {**summary, "ProductionVariants": pending_variants(live)}
        return described

    def update(self, params: JsonDocument) -> JsonDocument:
        """Updates an endpoint to another configuration.

        :raises ValidationException: it is being changed or has failed, or the configuration does not exist or is
            invalid.
        """
        with self._registry.lock:
            endpoint = self._changeable(params["EndpointName"])
            plan = self._plan(params["EndpointConfigName"])
            if params.get("RetainAllVariantProperties"):
                excluded = {each["VariantPropertyType"] for each in params.get("ExcludeRetainedVariantProperties", [])}
                _retain(endpoint["Plan"], plan, excluded)
            config = params.get("DeploymentConfig")
            if config is None and params.get("RetainDeploymentConfig"):
                config = endpoint.get("LastDeploymentConfig")
            check_deployment(config, [each["Count"] for each in plan["Variants"]], self._host.alarms)
            # Both fleets run until the old one is drained, so both count. A rolling update's new fleet counts a batch.
            self._quotas.check_instances(self._registry, instances_of(_first_batch(plan, config)))
            self._quotas.check_instances(self._registry, instances_of(plan), instead_of=params["EndpointName"])
            summary = {"EndpointConfigName": plan["EndpointConfigName"], "StartTime": now()}
            self._change(endpoint, "Updating")
            endpoint.update({"Pending": summary, "LastDeploymentConfig": config})
            self._registry.save()
            self._live(params["EndpointName"]).update(plan, config)
        return {"EndpointArn": endpoint["EndpointArn"]}

    def scale(self, params: JsonDocument) -> JsonDocument:
        """Changes weights and instance counts.

        :raises ValidationException: a variant is unknown, or all weights would be 0.
        """
        changes = params["DesiredWeightsAndCapacities"]
        with self._registry.lock:
            endpoint = self._changeable(params["EndpointName"])
            variants = {each["VariantName"]: each for each in endpoint["Plan"]["Variants"]}
            for change in changes:
                if change["VariantName"] not in variants:
                    raise ValidationException(f"Could not find variant {change['VariantName']}.")
                if "ServerlessUpdateConfig" in change:
                    raise ValidationException("ServerlessUpdateConfig is not supported on this machine's SageMaker.")
                if change.get("DesiredInstanceCount", 1) < 1:
                    raise ValidationException("DesiredInstanceCount must be at least 1.")
            weights = {name: variant["Weight"] for name, variant in variants.items()}
            weights |= {change["VariantName"]: change.get("DesiredWeight", 1) for change in changes}
            if sum(weights.values()) <= 0:
                raise ValidationException("At least one variant must have a weight above 0.")
            counts = {change["VariantName"]: change.get("DesiredInstanceCount") for change in changes}
            scaled = [{**each, "Count": counts.get(name) or each["Count"]} for name, each in variants.items()]
            wanted = instances_of({"Variants": scaled})
            self._quotas.check_instances(self._registry, wanted, instead_of=params["EndpointName"])
            self._change(endpoint, "Updating")
            self._live(params["EndpointName"]).scale(changes)
        return {"EndpointArn": endpoint["EndpointArn"]}

    def delete(self, params: JsonDocument) -> None:
        """Deletes an endpoint.

        :raises ValidationException: it does not exist, has inference components, or is already being deleted.
        """
        name = params["EndpointName"]
        with self._registry.lock:
            endpoint = self._found(name)
            if endpoint["EndpointStatus"] == "Deleting":
                raise ValidationException(f'Cannot update in-progress endpoint "{endpoint["EndpointArn"]}".')
            if any(each["EndpointName"] == name for each in self._registry.of(COMPONENT).values()):
                raise ValidationException(f"Endpoint {name} still has inference components; delete them first.")
            self._change(endpoint, "Deleting")
            self._host.delete(name, lambda: self._forget(name))

    def _plan(self, config_name: str) -> JsonDocument:
        """Returns a copy of a configuration and its models: a later deletion of them does not affect the endpoint."""
        config = self._registry.get(CONFIG, config_name)
        variants = []
        for variant in config["ProductionVariants"]:
            planned = {**variant, "Weight": weight_of(variant), "Count": variant["InitialInstanceCount"]}
            if model_name := variant.get("ModelName"):
                planned["Container"] = container_of(self._registry.get(MODEL, model_name))
            variants.append(planned)
        plan: JsonDocument = {"EndpointConfigName": config_name, "Variants": variants}
        if asynchronous := config.get("AsyncInferenceConfig"):
            plan["AsyncInferenceConfig"] = asynchronous
        return plan

    def _reporter(self, name: str) -> Any:
        def report(status: str, reason: str | None = None, plan: JsonDocument | None = None) -> None:
            with self._registry.lock:
                endpoint = self._registry.of(ENDPOINT).get(name)
                if endpoint is None or endpoint["EndpointStatus"] == "Deleting":
                    return
                if plan is not None:
                    endpoint["Plan"] = plan
                    endpoint["EndpointConfigName"] = plan["EndpointConfigName"]
                if status in ("InService", "Failed"):
                    endpoint["Pending"] = None
                endpoint["FailureReason"] = reason[:1024] if reason else None
                self._change(endpoint, status)

        return report

    def _live(self, name: str) -> LiveEndpoint:
        live = self._host.find(name)
        assert live is not None
        return live

    def _changeable(self, name: str) -> JsonDocument:
        endpoint = self._found(name)
        if endpoint["EndpointStatus"] in CHANGING:
            raise ValidationException(f'Cannot update in-progress endpoint "{endpoint["EndpointArn"]}".')
        if endpoint["EndpointStatus"] != "InService":
            raise ValidationException(f'Cannot update endpoint "{endpoint["EndpointArn"]}": it is not in service.')
        return endpoint


def _first_batch(plan: JsonDocument, config: JsonDocument | None) -> JsonDocument:
    rollout = Rollout.of(config, sum(each["Count"] for each in plan["Variants"]))
    share = rollout.shares[0] if rollout.rolling else 1.0
    return {"Variants": [{**each, "Count": part_of(each["Count"], share)} for each in plan["Variants"]]}


def _retain(before: JsonDocument, plan: JsonDocument, excluded: set[str]) -> None:
    old = {each["VariantName"]: each for each in before["Variants"]}
    for variant in plan["Variants"]:
        if (kept := old.get(variant["VariantName"])) is None:
            continue
        if "DesiredInstanceCount" not in excluded:
            variant["Count"] = kept["Count"]
        if "DesiredWeight" not in excluded:
            variant["Weight"] = kept["Weight"]
