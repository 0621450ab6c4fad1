"""The operations on endpoints. ``hosting`` runs their processes."""

from __future__ import annotations

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.endpoint_configs import weight_of
from local_sagemaker.control.models import container_of, isolation_of
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import COMPONENT, CONFIG, ENDPOINT, MODEL, JsonDocument, Registry, now
from local_sagemaker.control.resource_operations import ResourceOperations
from local_sagemaker.hosting.endpoint import LiveEndpoint, Report
from local_sagemaker.hosting.fleets import Deployment
from local_sagemaker.hosting.host import Host

# The beginning of SageMaker's message (aws/sagemaker-python-sdk, pull request 3124); its end is ours.
ASYNCHRONOUS = (
    "The AsyncInferenceConfig parameter cannot be removed from this endpoint {0}. To change the endpoint, "
    "delete it and create it again."
)
CHANGING = ("Creating", "Updating", "Deleting")


class Endpoints(ResourceOperations):
    kind = ENDPOINT
    noun = "Endpoint"
    listed = "Endpoints"
    status = "EndpointStatus"

    def __init__(self, registry: Registry, host: Host) -> None:
        super().__init__(registry)
        self._host = host

    def changes(self) -> dict[str, OperationHandler]:
        return {"UpdateEndpoint": self.update, "DeleteEndpoint": self.delete}

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates an endpoint.

        :raises ValidationException: it exists, or its configuration or a model does not exist.
        """
        name = params["EndpointName"]
        arn = self._registry.arn(ENDPOINT, name)
        with self._registry.lock:
            self._check_name(name)
            plan = self._plan(params["EndpointConfigName"])
            at = now()
            document = {
                "EndpointName": name,
                "EndpointArn": arn,
                "EndpointConfigName": params["EndpointConfigName"],
                "EndpointStatus": "Creating",
                "CreationTime": at,
                "LastModifiedTime": at,
                "Plan": plan,
                "Tags": params.get("Tags"),
            }
            self._registry.add(ENDPOINT, name, document)
            self._host.open(name, self._reporter(name)).serve(plan)
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
        return described

    def update(self, params: JsonDocument) -> JsonDocument:
        """Updates an endpoint to another configuration.

        A DeploymentConfig is not carried out: all traffic moves at once, when the new fleet is healthy. Counts and
        weights are those of the new configuration, also with RetainAllVariantProperties.

        :raises ValidationException: it is being changed or has failed, the configuration does not exist, or the
            endpoint is asynchronous and the configuration is not.
        """
        with self._registry.lock:
            endpoint = self._changeable(params["EndpointName"])
            plan = self._plan(params["EndpointConfigName"])
            if "AsyncInferenceConfig" in endpoint["Plan"] and "AsyncInferenceConfig" not in plan:
                raise ValidationException(ASYNCHRONOUS.format(params["EndpointName"]))
            self._change(endpoint, "Updating")
            self._live(params["EndpointName"]).serve(plan)
        return {"EndpointArn": endpoint["EndpointArn"]}

    def delete(self, params: JsonDocument) -> None:
        """Deletes an endpoint. One that is in progress is rejected (aws/amazon-sagemaker-examples, pull request 3188).

        :raises ValidationException: it does not exist, has inference components, or is being created or changed.
        """
        name = params["EndpointName"]
        with self._registry.lock:
            endpoint = self._found(name)
            if endpoint["EndpointStatus"] in CHANGING:
                raise ValidationException(f'Cannot update in-progress endpoint "{endpoint["EndpointArn"]}".')
            if any(each["EndpointName"] == name for each in self._registry.of(COMPONENT).values()):
                raise ValidationException(f"Endpoint {name} still has inference components; delete them first.")
            self._change(endpoint, "Deleting")
            self._host.delete(name, lambda: self._forget(name))

    def _check_name(self, name: str) -> None:
        """The name is case-insensitive in CreateEndpoint, and in nothing else (CreateEndpointInput.EndpointName)."""
        same = (taken for taken in self._registry.of(ENDPOINT) if taken.lower() == name.lower())
        super()._check_name(next(same, name))

    def _plan(self, config_name: str) -> JsonDocument:
        """Returns a copy of a configuration and its models: a later deletion of them does not affect the endpoint."""
        config = self._registry.get(CONFIG, config_name)
        variants = []
        for variant in config["ProductionVariants"]:
            planned = {**variant, "Weight": weight_of(variant), "Count": variant["InitialInstanceCount"]}
            if model_name := variant.get("ModelName"):
                planned["Container"] = {**container_of(self._registry.get(MODEL, model_name)), **isolation_of(config)}
            variants.append(planned)
        plan: JsonDocument = {"EndpointConfigName": config_name, "Variants": variants, **isolation_of(config)}
        if asynchronous := config.get("AsyncInferenceConfig"):
            plan["AsyncInferenceConfig"] = asynchronous
        return plan

    def _reporter(self, name: str) -> Report:
        def report(status: str, reason: str | None = None, plan: JsonDocument | None = None) -> None:
            served = plan and {"Plan": plan, "EndpointConfigName": plan["EndpointConfigName"]}
            self._report(name, status, reason, served)

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


def described_variants(plan: JsonDocument, deployment: Deployment | None) -> list[JsonDocument]:
    """Returns the variants of a plan as DescribeEndpoint does, with what runs of them now.

    :param deployment: None if nothing runs.
    """
    running = deployment.variants if deployment else {}
    described = []
    for planned in plan["Variants"]:
        variant, weight, count = running.get(planned["VariantName"]), planned["Weight"], planned["Count"]
        current = 0 if variant is None else count if variant.pool is None else len(variant.pool.healthy())
        document = {
            "VariantName": planned["VariantName"],
            "CurrentWeight": weight if variant else 0.0,
            "DesiredWeight": weight,
            "CurrentInstanceCount": current,
            "DesiredInstanceCount": count,
            "RoutingConfig": planned.get("RoutingConfig"),
            "ManagedInstanceScaling": planned.get("ManagedInstanceScaling"),
        }
        if container := planned.get("Container"):
            document["DeployedImages"] = [{"SpecifiedImage": container["Image"], "ResolvedImage": container["Image"]}]
        described.append(document)
    return described
