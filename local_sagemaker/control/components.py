"""The operations on inference components. ``hosting.live_components`` runs their processes."""

from __future__ import annotations

from collections.abc import Iterable

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.models import check_environment, container_of, isolation_of
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import COMPONENT, ENDPOINT, MODEL, JsonDocument, Registry, now
from local_sagemaker.control.resource_operations import ResourceOperations
from local_sagemaker.hosting import live_components
from local_sagemaker.hosting.endpoint import LiveEndpoint
from local_sagemaker.hosting.host import Host


class Components(ResourceOperations):
    kind = COMPONENT
    noun = "InferenceComponent"
    listed = "InferenceComponents"
    status = "InferenceComponentStatus"

    def __init__(self, registry: Registry, host: Host) -> None:
        super().__init__(registry)
        self._host = host

    def changes(self) -> dict[str, OperationHandler]:
        return {
            "UpdateInferenceComponent": self.update,
            "UpdateInferenceComponentRuntimeConfig": self.scale,
            "DeleteInferenceComponent": self.delete,
        }

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates an inference component.

        :raises ValidationException: it exists, its endpoint or variant does not exist, or its specification is invalid.
        """
        name = params["InferenceComponentName"]
        arn = self._registry.arn(COMPONENT, name)
        with self._registry.lock:
            self._check_name(name)
            live = self._live(params["EndpointName"])
            plan = planned(self._registry, params)
            at = now()
            document = {
                "InferenceComponentName": name,
                "InferenceComponentArn": arn,
                "EndpointName": params["EndpointName"],
                "EndpointArn": self._registry.arn(ENDPOINT, params["EndpointName"]),
                "VariantName": plan["VariantName"],
                "InferenceComponentStatus": "Creating",
                "CreationTime": at,
                "LastModifiedTime": at,
                "Specification": params["Specification"],
                "Plan": plan,
                "Tags": params.get("Tags"),
            }
            self._registry.add(COMPONENT, name, document)
            live_components.place(live, name, plan, self._reporter(name))
        return {"InferenceComponentArn": arn}

    def describe(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            component = self._found(params["InferenceComponentName"])
            plan = component["Plan"]
            live = self._host.find(component["EndpointName"])
            described = {**component, "Specification": _described(component["Specification"])}
            placed = live.components.get(params["InferenceComponentName"]) if live else None
        if placed is not None and placed.pool is not None and live is not None:
            with live.changed:
                current = len(placed.pool.healthy())
            described["RuntimeConfig"] = {"DesiredCopyCount": plan["CopyCount"], "CurrentCopyCount": current}
        return described

    def _selected(self, params: JsonDocument) -> Iterable[JsonDocument]:
        for each in super()._selected(params):
            of_endpoint = params.get("EndpointNameEquals") in (None, each["EndpointName"])
            if of_endpoint and params.get("VariantNameEquals") in (None, each["VariantName"]):
                yield each

    def update(self, params: JsonDocument) -> JsonDocument:
        """Updates a component. Copies of a new specification start beside the old ones. A new count scales in place."""
        name = params["InferenceComponentName"]
        count: int | None = params.get("RuntimeConfig", {}).get("CopyCount")
        with self._registry.lock:
            component = self._changeable(name)
            if params.get("Specification") is None:
                if count is None:
                    raise ValidationException("Specification or RuntimeConfig must be given.")
                return self._scale(component, count)
            before = component["Plan"]
            plan = planned(
                self._registry,
                {
                    "EndpointName": component["EndpointName"],
                    "VariantName": before["VariantName"],
                    "Specification": params["Specification"],
                    "RuntimeConfig": {"CopyCount": before["CopyCount"] if count is None else count},
                },
            )
            if bool(plan["Base"]) != bool(before["Base"]):
                raise ValidationException("An adapter can't become a component of its own, nor the other way round.")
            live = self._live(component["EndpointName"])
            report = self._reporter(name, {"Plan": before, "Specification": component["Specification"]})
            self._change(component, "Updating")
            component.update({"Plan": plan, "Specification": params["Specification"]})
            live_components.place(live, name, plan, report)
        return {"InferenceComponentArn": component["InferenceComponentArn"]}

    def scale(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            component = self._changeable(params["InferenceComponentName"])
            return self._scale(component, params["DesiredRuntimeConfig"]["CopyCount"])

    def delete(self, params: JsonDocument) -> None:
        """Deletes a component.

        :raises ValidationException: it does not exist, or adapters are loaded into it.
        """
        name = params["InferenceComponentName"]
        with self._registry.lock:
            component = self._found(name)
            if any(each["Plan"]["Base"] == name for each in self._registry.of(COMPONENT).values()):
                raise ValidationException(f"Inference component {name} has adapters; delete them first.")
            self._change(component, "Deleting")
            live = self._host.find(component["EndpointName"])
            if live is None:
                self._forget(name)
            else:
                live_components.delete(live, name, lambda: self._forget(name))

    def _scale(self, component: JsonDocument, count: int) -> JsonDocument:
        if component["Plan"]["Base"]:
            raise ValidationException("An adapter has no copies of its own; its base component has.")
        name, before = component["InferenceComponentName"], component["Plan"]
        live = self._live(component["EndpointName"])
        component["Plan"] = {**before, "CopyCount": count}
        self._change(component, "Updating")
        live_components.scale(live, name, count, self._reporter(name, {"Plan": before}))
        return {"InferenceComponentArn": component["InferenceComponentArn"]}

    def _reporter(self, name: str, before: JsonDocument | None = None) -> live_components.Report:
        """Returns a callback that records the component's status.

        :param before: the fields to restore if an update is rolled back.
        """

        def report(status: str, reason: str | None) -> None:
            self._report(name, status, reason, before if status == "InService" and reason else None)

        return report

    def _changeable(self, name: str) -> JsonDocument:
        component = self._found(name)
        if component["InferenceComponentStatus"] != "InService":
            raise ValidationException(
                f"Inference component {name} can't be updated: it is {component['InferenceComponentStatus']}."
            )
        return component

    def _live(self, endpoint: str) -> LiveEndpoint:
        found, live = self._registry.get(ENDPOINT, endpoint), self._host.find(endpoint)
        if live is None:
            raise self._registry.missing(ENDPOINT, endpoint)
        if found["EndpointStatus"] != "InService":
            raise ValidationException(f"Endpoint {endpoint} is not in service: it is {found['EndpointStatus']}.")
        return live


def _described(specification: JsonDocument) -> JsonDocument:
    """Returns the specification as replies show it: with DeployedImage in place of Image."""
    if not (container := specification.get("Container")):
        return specification
    described = {**container, "ArtifactUrl": container.get("ArtifactUrl")}
    if image := container.get("Image"):
        described["DeployedImage"] = {"SpecifiedImage": image, "ResolvedImage": image}
    return {**specification, "Container": described}


def planned(registry: Registry, params: JsonDocument) -> JsonDocument:
    """Returns the plan of a specification: a container, a model, or an adapter of another component.

    :raises ValidationException: the specification is invalid.
    """
    specification = params.get("Specification")
    if specification is None:
        raise ValidationException("Specification must be given; Specifications is not supported here.")
    container, model = specification.get("Container"), specification.get("ModelName")
    if base := specification.get("BaseInferenceComponentName"):
        for member in ("ComputeResourceRequirements", "ModelName"):
            if specification.get(member) is not None:
                raise ValidationException(f"An adapter has no {member} of its own. Leave it out.")
        found = registry.get(COMPONENT, base)
        if found["EndpointName"] != params["EndpointName"]:
            raise registry.missing(COMPONENT, base)
        if found["Plan"]["Base"] or not (container or {}).get("ArtifactUrl"):
            raise ValidationException("An adapter needs Container.ArtifactUrl, and a base that is no adapter.")
        data = {"ModelDataUrl": container["ArtifactUrl"]}
        return {"VariantName": found["VariantName"], "Base": base, "Container": data, "CopyCount": 0}
    variant = _variant(registry, params)
    if bool(container) == bool(model):
        raise ValidationException("Exactly one of ModelName and Container must be given.")
    compute = specification.get("ComputeResourceRequirements")
    if compute is None or params.get("RuntimeConfig") is None:
        raise ValidationException("ComputeResourceRequirements and RuntimeConfig must be given.")
    least = compute["MinMemoryRequiredInMb"]
    if least > compute.get("MaxMemoryRequiredInMb", least):
        raise ValidationException("MinMemoryRequiredInMb must not exceed MaxMemoryRequiredInMb.")
    count = params["RuntimeConfig"]["CopyCount"]
    plan = {"VariantName": variant, "Base": None, "CopyCount": count, **specification.get("StartupParameters", {})}
    isolation = isolation_of(registry.of(ENDPOINT)[params["EndpointName"]]["Plan"])
    return {**plan, "Container": {**_container(registry, container, model), **isolation}}


def _container(registry: Registry, container: JsonDocument | None, model: str | None) -> JsonDocument:
    if model is not None:
        found = container_of(registry.get(MODEL, model))
        if found.get("Mode") == "MultiModel":
            raise ValidationException(f"The model {model} is a MultiModel one, which no inference component can have.")
        return found
    assert container is not None
    if not container.get("Image"):
        raise ValidationException("Container.Image must be given.")
    check_environment(container.get("Environment", {}))
    made = {"Image": container["Image"], "Environment": container.get("Environment", {})}
    if url := container.get("ArtifactUrl"):
        made["ModelDataUrl"] = url
    return made


def _variant(registry: Registry, params: JsonDocument) -> str:
    variants = registry.of(ENDPOINT)[params["EndpointName"]]["Plan"]["Variants"]
    name: str = params.get("VariantName") or ""
    for variant in variants:
        if variant["VariantName"] == name:
            if variant.get("Container"):
                raise ValidationException(f"Variant {name} has a model; inference components need one without.")
            return name
    raise ValidationException(f"Could not find variant '{name}' of endpoint {params['EndpointName']}.")
