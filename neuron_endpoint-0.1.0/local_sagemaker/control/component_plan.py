"""Checks the specification of an inference component, and returns the plan that `hosting.live_components` runs."""

from __future__ import annotations

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.models import check_environment, container_of
from local_sagemaker.control.registry import COMPONENT, ENDPOINT, MODEL, JsonDocument, Registry


def planned(registry: Registry, params: JsonDocument) -> JsonDocument:
    """Returns the plan of a specification: a container, a model, or an adapter of another component.

    :raises ValidationException: the specification is invalid.
    """
    specification = params.get("Specification")
    if specification is None:
        raise ValidationException("Specification must be given; Specifications is not supported here.")
    container, model = specification.get("Container"), specification.get("ModelName")
    if base := specification.get("BaseInferenceComponentName"):
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
    if specification.get("ComputeResourceRequirements") is None or params.get("RuntimeConfig") is None:
        raise ValidationException("ComputeResourceRequirements and RuntimeConfig must be given.")
    count = params["RuntimeConfig"]["CopyCount"]
    plan = {"VariantName": variant, "Base": None, "CopyCount": count, **specification.get("StartupParameters", {})}
    return {**plan, "Container": _container(registry, container, model)}


def _container(registry: Registry, container: JsonDocument | None, model: str | None) -> JsonDocument:
    if model is not None:
        return container_of(registry.get(MODEL, model))
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
